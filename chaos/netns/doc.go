// Package netns makes hosts of network namespaces on one bridge, and cuts, loses, slows and shuffles what goes between them. The
// caller's process itself lives in a namespace of its own (Enter), so nothing that it does reaches the machine's network,
// and everything is gone when the process ends, however it ends. Linux and root only. It is not safe for concurrent
// use, and starts no goroutine but the one with which Enter passes signals on and those
// of relays, which Heal joins.
package netns
