// Package eos looks for what "exactly once" forbids: transactional producers of both versions write to several partitions
// and stage offsets of a group, commit, abort, are fenced, run out of time and send messages that arrive late; readers
// with read_committed follow them; and a History compares what everybody was told with what everybody saw.
//
// A record is found lost, there twice, read although its transaction was aborted or not even asked to commit, torn from
// its transaction, or out of order; offsets are found without their records and the reverse; a transaction is found open
// that nobody will end. The package knows nothing of brokers: Load.Dial leads to whatever speaks the protocol, in a
// synctest bubble or outside. Tests import it.
//
// Every producer and reader is one goroutine with connections of its own, joined by Load.Run; History has a lock under
// which nobody waits.
package eos
