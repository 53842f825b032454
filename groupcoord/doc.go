// Package groupcoord is the service facade of the group coordinator: it finds the shard of a group, posts an operation
// to it and turns what comes back into the answer of an API. The rules are in the pure packages below:
// groupcoord/classic (membership) and groupcoord/offsets (committed offsets).
//
// It owns the records of __consumer_offsets: every partition that this broker leads is one shard of the coord runtime,
// whose goroutines it starts through that runtime and joins in Close. It has no goroutines of its own;
// its one lock collects the answers of several shards and is held over nothing. Sweeps of expired offsets are timers of the shards.
package groupcoord
