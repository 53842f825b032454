// Package loop is the event-loop tier of the simulation: the pure cores of several nodes (replica.State over real logs on
// a disk in memory, the controller's decisions over images, the coordinators of groups and of transactions) under one
// scheduler with virtual time. It is imported by tests only.
//
// There is one goroutine and no lock. Every event has a place in one heap, ordered by time and then by number; all chance
// comes from one generator. So the same seed gives the same run, byte for byte: Result.Digest covers every event, and
// what the logs and the metadata are at the end.
//
// What is not real here: raft (a committed list of entries with terms, lost answers and entries whose outcome is not
// known; meta.go), the network (messages that are late, lost, overtaken; net.go), and the clients. The shells of the
// broker (goroutines, sockets, purgatory) are not part of it: package sim runs those.
//
// After every event the parts that it touched are checked (check.go), and at the end, after a time without faults,
// everything is: acknowledged records are there once and in order on every member of the ISR, consumers have seen nothing
// that was replaced, logs are equal below the high watermark, there was one leader per epoch, committed offsets never went
// back, and the cluster works.
//
// About half of the seeds carry transactions of both versions (txnproducer.go), of which readers of what is committed see
// all or nothing, as their producers were told (txncheck.go). The sender of markers and the way to the coordinator are
// stand-ins for txn/marker and broker/api (txnshard.go, txnproduce.go); the coordinator's core, the guards and the log are
// the real ones.
package loop
