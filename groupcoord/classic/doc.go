// Package classic is the state machine of classic consumer groups (JoinGroup, SyncGroup, Heartbeat, LeaveGroup and the
// group administration): KIP-62, 134, 345, 394, 559, 800 and 814 as Kafka 4.4 carries them out.
//
// Hard state is what Replay makes of GroupMetadata records: per group its last record. Soft state is the running
// group: who waits, which phase, which timers; it is built from the hard state when a shard has been loaded. Every
// operation reads the state, works on a copy of its group and returns a decision whose Soft installs that copy.
//
// The package has no goroutines, locks, clock or randomness: now and member ids are arguments. It does not know
// offsets (groupcoord/offsets asks it through an interface) nor the embedded protocols beyond the topics of a consumer
// subscription.
package classic
