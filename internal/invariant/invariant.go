package invariant

import "fmt"

// Must panics with "BUG: " and the formatted message unless ok holds.
func Must(ok bool, format string, args ...any) {
	if !ok {
		panic("BUG: " + fmt.Sprintf(format, args...))
	}
}

// Check runs a costly test of an invariant when Enabled, and panics as Must does if it returns an error.
func Check(test func() error) {
	if !Enabled {
		return
	}
	if err := test(); err != nil {
		panic("BUG: " + err.Error())
	}
}
