// Package state is the state machine of the transaction coordinator for one shard of `__transaction_state`: versions 1
// and 2 of Kafka's transactions (KIP-98, 360, 588, 664, 890) as Kafka 4.4 carries them out.
//
// Hard state is what Replay makes of records in Kafka's schema (coordrec.TxnValue) and of nothing else. Soft state is the
// epoch that a retried InitProducerId may name, and who uses a transactional id; it is gone after a reload.
//
// A decision is one record, and decides at once: there is no state between Ongoing and PrepareAbort for a fenced
// producer, so a refused append leaves the epoch as it was (KAFKA-9666). What Kafka calls a pending transition is a
// record that is not committed yet; later operations see it and their answers wait for it.
//
// The package has no goroutines, locks, clock or randomness; ids are drawn by the caller.
package state
