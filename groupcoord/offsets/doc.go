// Package offsets is the state machine of committed offsets: commit, fetch, deletion and expiry of the offsets of the
// groups of one shard (KIP-211, 320, 447, 709 and 848's and 1251's topic ids as Kafka 4.4 carries them out).
//
// Everything is hard state: it is what Replay makes of OffsetCommit records. What it must know of groups (membership,
// subscription, since when they are empty) it asks through the interface Groups, which groupcoord/classic implements.
//
// The package has no goroutines, locks, clock or randomness.
package offsets
