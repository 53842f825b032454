// Package invariant states what must be true of kaja's own code. A violated invariant is a bug, never a bad input or a
// failing disk: those are errors.
//
// Must is always on; Check is compiled in under build tag "invariants" or with the race detector. It starts no
// goroutine and keeps no state.
package invariant
