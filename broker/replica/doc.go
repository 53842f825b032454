// Package replica is the data plane of one broker: its partitions, who leads them, what of them is committed, and the
// log directories that hold them.
//
// state.go and state_isr.go are the pure core: one partition's leader or follower state as a function of its inputs.
// partition.go is the shell around it and the partition's log (home.go: in which directory); manager.go the map of them with its lifecycle: recovery,
// metadata, checkpoints, retention, shutdown. flusher.go is group commit. fetcher.go copies what other brokers lead
// (source_session.go: what it tells them; follower.go: what it stores; diverge.go, pure: where histories part);
// mover.go brings replicas into other log directories (move.go, pure: the steps; future.go: the copy; swap.go: how it takes its place;
// future_open.go: what a start does with it). leader_fetch.go serves those who copy from here; isr.go brings changes of in-sync replicas to the controller.
//
// It knows no connection, and of Kafka's requests those that a follower sends. It owns the files of a log directory that belong to no single partition:
// recovery-point-offset-checkpoint, log-start-offset-checkpoint, replication-offset-checkpoint, cleaner-offset-checkpoint,
// .kafka_cleanshutdown, and kaja's own .kaja_cleanshutdown (resting.go).
//
// Goroutines: per log directory a fixed number of flushers; one for housekeeping (checkpoints, retention, producer
// expiry, removal of deleted files); log.cleaner.threads for compaction (cleaner.go); one scrubber; one that talks to the
// controller about ISRs, one about log directories; a bounded number for moves while there are any; one fetcher for each broker that is followed. All are started by NewManager's Open or by Apply and
// joined by Close.
//
// Locks: Manager.mu → Partition.appendMu (covers file I/O: xsync) → Partition.mu → purgatory lists. The log has its own
// lock below appendMu. Those who wait are told after every lock was released.
package replica
