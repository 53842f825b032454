// Package load puts a cluster under load and judges what came of it: idempotent producers, a probe that measures how long
// nothing is acknowledged, a producer with acks=1, readers that follow, a group that commits, and the transactions of
// sim/eos. It knows addresses only, and nothing of what is done to the cluster meanwhile. Every worker is a goroutine with
// clients of its own, joined by Load.Stop; what workers share has locks under which nobody waits.
package load
