// Package purgatory holds requests that wait for a partition: fetches that want more bytes, produces that wait for the
// high watermark.
//
// Each partition owns one Readers and one Commits. A parked request is an intrusive entry in the lists of the
// partitions it waits for; an append or a move of the high watermark walks the list of that partition only, and what
// it completes is woken after the list's lock was released. To complete is to signal: no waker ever does another
// request's work. There is no polling, no timing wheel and no goroutine; deadlines are time.AfterFunc.
//
// A wake-up cannot be lost between a request's look at the partition and its being parked: the look yields a Mark (or
// the generation of an append) and Watch compares it with what has happened since, under the list's lock.
//
// Locks: one plain mutex per list and one per operation, none held over a call out. A caller may hold its partition's
// lock while it calls Watch or Push, but not while it calls anything that completes (Advance, Interrupt, Fail, Drain).
package purgatory
