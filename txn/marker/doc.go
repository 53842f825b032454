// Package marker brings the markers of decided transactions to the leaders of their partitions: one queue for each
// destination broker with a few requests under way, so that a slow broker delays only its own markers.
//
// A job ends when each of its partitions has the marker or exists no longer, or when it is cancelled because the shard
// that decided it is led elsewhere. Nothing else ends it: every other answer, and none at all, is tried again, with the
// leader looked up anew. A repetition does no harm: either the partition has the marker, or a later producer epoch. Version
// 1 of transactions keeps the epoch, so a request that was given up must not arrive in the next transaction: each says which
// attempt it belongs to, and a Fence at the other end keeps out what an earlier one has sent.
//
// Queues are bounded by the state they come from: a transactional id has at most one job, a partition of a job is in at
// most one queue, and a request holds at most maxPartitions of them.
//
// Goroutines: one for each request under way, and one timer; Close joins them. Locks: the Sender's, never held over a call
// but that for the broker epoch; the Fence's, of which a sender's is held while markers are appended.
package marker
