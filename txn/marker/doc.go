// Package marker brings the markers of decided transactions to the leaders of their partitions: one queue for each
// destination broker with a few requests under way, so that a slow broker delays only its own markers.
//
// A job ends when each of its partitions has the marker or exists no longer, or when it is cancelled because the shard
// that decided it is led elsewhere. Nothing else ends it: every other answer, and none at all, is tried again, with the
// leader looked up anew. Markers are idempotent by producer id, epoch and coordinator epoch, so a repetition does no
// harm.
//
// Queues are bounded by the state they come from: a transactional id has at most one job, a partition of a job is in at
// most one queue, and a request holds at most maxPartitions of them.
//
// Goroutines: one for each request under way, and one timer; Close joins them. Locks: one, never held
// over a call.
package marker
