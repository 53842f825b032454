package broker

// StartError says why a node does not start, and what to do about it.
type StartError struct {
	// What was attempted, and on what: "listen on 127.0.0.1:9092".
	What string
	Err  error
	// Todo is one sentence for the operator.
	Todo string
}

// Error is What and Err; Todo is left to whoever talks to people.
func (e *StartError) Error() string { return e.What + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *StartError) Unwrap() error { return e.Err }
