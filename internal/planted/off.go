//go:build !planted

package planted

import "time"

// On reports whether the bug is switched on: never, in a build without the tag.
func On(Bug) bool { return false }

// Wall is the wall clock.
func Wall() time.Time { return time.Now() }
