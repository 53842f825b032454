package raftctl

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Error is a protocol error with the text that the client is shown. Message is "" where Kafka sends none.
type Error struct {
	Code    *kerr.Error
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.Error()
	}
	return e.Code.Message + ": " + e.Message
}

// Unwrap gives the code, so that errors.Is works with kerr's values.
func (e *Error) Unwrap() error { return e.Code }

func refuse(code *kerr.Error, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// errUnknown is the answer when the change may have happened or may still happen.
func errUnknown(message string) *Error { return &Error{Code: kerr.RequestTimedOut, Message: message} }

// errNotController is the answer when this node did not lead: nothing happened.
func errNotController() *Error {
	return &Error{Code: kerr.NotController, Message: "This node is not the active controller."}
}

// ErrNoMetadata says that the raft store is empty although the node's directories hold data.
var ErrNoMetadata = errors.New("the raft store is empty, but the log directories hold data")

// ErrClosed says that the controller was closed before the request was decided.
var ErrClosed = errors.New("controller is closed")
