//go:build invariants || race

package invariant

// Enabled reports whether Check runs its tests.
const Enabled = true
