// Package raftctl is the controller: it decides metadata changes, writes them as Kafka's metadata records to a
// hashicorp/raft log and publishes every committed change as (delta, image).
//
// A decision is a pure function of an image and a request (state.go and the files named for what they decide). The decide
// loop runs it on a speculative image that is ahead of the committed one by the entries under way, and answers leave in
// the order of decisions, each once its entry is committed and published. When the leadership is lost the speculative
// image is thrown away and every answer under way is "unknown" (REQUEST_TIMED_OUT).
//
// Every entry carries (controller epoch, number). A new leader claims the next epoch with its first entry; the FSM drops
// whatever does not carry the image's epoch and the next number, so an entry decided on an older state has no effect
// wherever raft puts it.
//
// Goroutines, all joined by Close: watch (raft's leadership channel), decide (the loop), settle (answers in order, while anything
// is under way), publish (deltas in log order), snapshot (by bytes and age); with peers, follow (until the image is whole), observe (who
// leads), watchLeader (for how long it is silent), the pusher with one goroutine a peer, watchVoters (who votes, and how far those without
// a broker are), one for each voter that is being asked that, and one for each broker that is being looked for; and hashicorp/raft's own. No lock is held over any of them; images are read by
// atomic pointer. Package raftctl is the only importer of hashicorp/raft.
package raftctl
