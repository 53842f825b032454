//go:build race

package server

// raceEnabled: sync.Pool then drops a part of what it is given, so allocations can't be counted.
const raceEnabled = true
