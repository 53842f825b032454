//go:build planted

package planted

import (
	"os"
	"sync/atomic"
)

// current is the one bug that is switched on. It and wrong are the only package state of the module, and only in builds
// with the tag: a bug has to reach code that knows nothing of tests.
var current = fromEnvironment()

// fromEnvironment lets a whole process have the bug that PLANTED_BUG names.
func fromEnvironment() *atomic.Value {
	var v atomic.Value
	v.Store(Bug(os.Getenv("PLANTED_BUG")))
	return &v
}

// On reports whether the bug is switched on.
func On(b Bug) bool { return current.Load() == b }

// Switch switches b on and every other bug off; "" switches all off.
func Switch(b Bug) { current.Store(b) }
