package raftctl

import "github.com/hashicorp/raft"

// answered waits for a future of raft. Raft leaves some unanswered when it is shut down: an entry that its leader has
// committed and its state machine has not reached. Such a one is answered here with ErrRaftShutdown.
func (c *Controller) answered(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-c.gone:
	}
	select {
	case err := <-done:
		return err
	default:
		return raft.ErrRaftShutdown
	}
}
