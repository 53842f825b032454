// Package coord runs replicated state machines: one shard is a queue of operations, a machine that is only changed by
// replaying records, and a log that says when a record is committed. Group and transaction coordinators are machines;
// partition logs are logs.
//
// The loop is: take an operation, decide (read only), append, replay the same records, change soft state, park the
// replies; when the log reports commit, send them, then run the effects. A reply of a decision without records waits for
// the appends before it, since it may have seen them. A shard serves nothing (ErrLoading) before all that it loaded is
// committed. When the leadership is lost everything that waits fails (ErrNotHere) and the machine is dropped.
//
// The queue of a shard is bounded (Options.MaxQueued); what does not fit is refused with ErrBusy and has had no effect.
//
// Locks: Runtime.mu guards the map of shards, shard.mu the inbox; neither is held over a call out of the package.
//
// The package knows neither Kafka requests nor networks. Each active shard owns one goroutine, joined by its Runtime.
package coord
