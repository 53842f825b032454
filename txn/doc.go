// Package txn is the service facade of the transaction coordinator: it hashes transactional ids to shards of
// `__transaction_state`, posts operations of txn/state to the runtime (coord), draws producer ids where a decision asks
// for one, hands decided transactions to txn/marker and takes their completion back as an operation.
//
// It decides nothing: every rule is in txn/state, whose hard state is what replay makes of the log. It knows no
// connection and no partition but through interfaces that it declares.
//
// Goroutines: those of coord.Runtime and of marker.Sender, joined by Close, and one short-lived goroutine for each
// request that needs a new producer id, also joined. Locks: none of its own but a wait group.
package txn
