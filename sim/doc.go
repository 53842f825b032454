// Package sim runs whole clusters in one process of a test: brokers as they are, real clients, a network and disks in
// memory, and virtual time. It is imported by tests only.
//
// Everything lives in a testing/synctest bubble. The network has one goroutine, which delivers one packet at a time and
// then waits until every other goroutine of the bubble is blocked: it is the only caller of synctest.Wait. The time that
// a packet takes is a hash of (seed, connection, number of the packet), so it does not depend on the order in which
// goroutines draw random numbers. The network has one lock, under which nobody waits for anything but its own condition
// variables. Close the network last: it resets every connection and joins its goroutine.
//
// A process is killed by cutting it off from its host's network, cloning its disk as a crash would leave it, and letting
// what is left of the process end on the old disk, which nobody looks at again.
//
// The same seed gives the same faults and the same packet delays. Goroutines are scheduled by the Go runtime, so two runs
// of a seed are equal in practice (GOMAXPROCS=1, as in `make sim`), not by guarantee.
package sim
