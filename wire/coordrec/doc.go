// Package coordrec is the codec of the records that kaja keeps its metadata in: those of Kafka's `__cluster_metadata`
// as Kafka 4.4 writes them at metadata.version 33, and kaja's own from type 1000 up, in Kafka's envelope.
//
// Every older version of a record is read; one version is written. An unknown type, version or tagged field is an error:
// a node that meets one must not go on. Decoders never panic, alias nothing of their input, and allocate no more than a
// small multiple of it. The keys and values of `__consumer_offsets` for classic groups and offsets are kmsg's; tests
// here pin them to what Kafka 4.4 wrote. Those of `__transaction_state` (TxnValue) are here, since kmsg knows their first
// version only; as in Kafka, tagged fields that are not known are skipped there.
//
// It applies no record to a state (raftctl/image does) and has no state, goroutine or lock.
package coordrec
