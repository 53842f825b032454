package raftctl

import (
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

// silent is a future that gives its answer when it is told to.
type silent chan error

func (f silent) Error() error { return <-f }

// What raft has answered is the answer; what it leaves unanswered when it ends is answered all the same.
func TestFuturesAreAnswered(t *testing.T) {
	c := &Controller{gone: make(chan struct{})}
	f, want := make(silent, 1), errors.New("an answer")
	f <- want
	if err := c.answered(f); !errors.Is(err, want) {
		t.Errorf("answered: %v", err)
	}
	left := make(silent)
	defer close(left)
	got := make(chan error)
	go func() { got <- c.answered(left) }()
	close(c.gone)
	if err := <-got; !errors.Is(err, raft.ErrRaftShutdown) {
		t.Errorf("left unanswered: %v", err)
	}
}
