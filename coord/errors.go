package coord

import "errors"

// Errors that Post's callback receives instead of a body. Facades map them to their protocol's codes.
var (
	// ErrLoading: the shard is here, but what it loaded is not complete or not committed yet; retry soon.
	ErrLoading = errors.New("coord: shard is loading")
	// ErrNotHere: this broker does not lead the shard, or lost it while the request waited; find the new leader. What
	// the request asked for may or may not have happened.
	ErrNotHere = errors.New("coord: shard is not led here")
	// ErrFailed: the shard's records could not be replayed; it serves nothing until the next election.
	ErrFailed = errors.New("coord: shard failed")
	// ErrUnknown: the commit took longer than the deadline. The records stay in the log and in the state.
	ErrUnknown = errors.New("coord: not committed in time, outcome unknown")
	// ErrBusy: the shard's queue is full; nothing was done.
	ErrBusy = errors.New("coord: queue is full")
)
