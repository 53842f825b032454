package raftstore

import (
	"fmt"
	"testing"

	"github.com/kajamq/kaja/vfs/memfs"
)

// What another leader replaces is cut off the end and written anew, and the store opens after it, also after a crash at
// any moment of it. (raft-wal 0.4.0 sealed the cut segment without its index and refused it ever after.)
func TestReplacedEndSurvivesReopening(t *testing.T) {
	fs := newFS(t)
	s := open(t, fs)
	fill(t, s, 1, 20)
	for range 3 {
		if err := s.DeleteRange(15, 20); err != nil {
			t.Fatal(err)
		}
		fill(t, s, 15, 20)
	}
	for _, fate := range []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin} {
		t.Run(fmt.Sprint(fate), func(t *testing.T) {
			for seed := range uint64(20) {
				left := open(t, fs.Crash(fate, seed))
				checkEntries(t, left, 1, 20)
				if err := left.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, fs)
	checkEntries(t, s, 1, 20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
