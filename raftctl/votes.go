package raftctl

import (
	"runtime"

	"github.com/kajamq/kaja/raftctl/raftstore"
)

// votes is the store as raft keeps its term and vote in it. raft panics when its term cannot be written, which a full
// disk is enough for; here the goroutine of raft that asked ends instead. The store has failed then and takes nothing
// more, which ends the controller with the reason (Store.Failed); raft without that goroutine neither votes nor leads, and
// can still be shut down. NewRaft itself sets only the term that it has just read, which writes nothing.
type votes struct{ *raftstore.Store }

// SetUint64 implements raft.StableStore.
func (v votes) SetUint64(key []byte, value uint64) error {
	err := v.Store.SetUint64(key, value)
	if err != nil {
		runtime.Goexit()
	}
	return nil
}
