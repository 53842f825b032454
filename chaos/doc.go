//go:build linux

// Command chaos runs a cluster of real kaja processes, each on a host of its own (package netns) with a disk of its own
// (internal/loopdisk), puts it under load (package load), and does to it what happens to machines: processes are killed and
// stopped, links are cut in one way or both, lose packets and crawl, disks fill up and lose power, binaries are upgraded
// and taken back. In between the cluster has to become whole and take its load again. In the end everything that clients
// were told is compared with what is there.
//
// With -series it measures gaps: how long nothing is acknowledged, fault for fault, of kaja or, with -kafka-jars, of Kafka.
//
// `make chaos DURATION=300s SEED=1 FAULTS=kill,cut` runs it; the same seed gives the same schedule of faults. Linux and
// root only. Nothing touches the machine's own network or mounts, and everything ends with the process, however it ends.
// Runs at the same time keep out of each other's way by directories of their own (-dir).
package main
