// Package batch is a view of Kafka's record batch (magic 2) over the bytes that it lies in on the wire and on disk, which
// are the same: header fields, the fields a leader patches in place, CRC-32C, records, control records, and a Builder.
//
// A Batch aliases its buffer and copies nothing; the iterator over records allocates nothing per record. Batches of the
// formats 0 and 1 are recognised and refused (*MagicError). The package validates structure only; what a producer may
// send is judged by package log. It starts no goroutine and takes no lock; a Batch is as safe for concurrent use as its
// bytes are.
package batch
