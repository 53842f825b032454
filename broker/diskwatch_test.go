package broker

import "testing"

// A disk hangs after hangLooks looks without a sign of it, and no longer once half as many in a row were calm.
func TestHanging(t *testing.T) {
	var h hanging
	looks := func(n, stalled int, want bool) {
		t.Helper()
		for range n {
			h.look(stalled)
		}
		if h.on != want {
			t.Errorf("hangs: %v, want %v", h.on, want)
		}
	}
	looks(100, hangLooks-1, false)
	looks(1, hangLooks, true)
	looks(hangLooks/2-1, 0, true)
	looks(1, hangLooks/2, true) // not calm: it begins anew
	looks(hangLooks/2-1, hangLooks/2-1, true)
	looks(1, 0, false)
	if h.look(hangLooks-1) || !h.look(hangLooks) || h.look(hangLooks+1) {
		t.Error("a change is told when there is none, or not when there is")
	}
}
