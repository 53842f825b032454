package log

import (
	"slices"
	"sync"

	"github.com/kajamq/kaja/vfs"
)

// handle is one open .log file, one generation of a segment: bytes that a reader was promised in it are never
// overwritten. A cut below a pinned byte moves the segment to a new file (see segment.truncate), and the old handle
// lives until its last pin is gone.
type handle struct {
	file vfs.File

	mu      sync.Mutex
	pins    []int64 // exclusive end positions of promised ranges
	retired bool    // no new pins; closed with the last one
	closed  bool
}

// pin promises the bytes below end; false when the handle is retired.
func (h *handle) pin(end int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.retired {
		return false
	}
	h.pins = append(h.pins, end)
	return true
}

// unpin takes one promise back. An error of closing a file that nobody can reach any more means nothing.
func (h *handle) unpin(end int64) {
	h.mu.Lock()
	if i := slices.Index(h.pins, end); i >= 0 {
		h.pins[i] = h.pins[len(h.pins)-1]
		h.pins = h.pins[:len(h.pins)-1]
	}
	last := h.retired && len(h.pins) == 0 && !h.closed
	h.closed = h.closed || last
	h.mu.Unlock()
	if last {
		_ = h.file.Close()
	}
}

// pinnedBeyond reports whether a promised range reaches beyond pos.
func (h *handle) pinnedBeyond(pos int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.pins, func(end int64) bool { return end > pos })
}

// retire ends the handle; its file is closed now or with the last pin.
func (h *handle) retire() error {
	h.mu.Lock()
	h.retired = true
	last := len(h.pins) == 0 && !h.closed
	h.closed = h.closed || last
	h.mu.Unlock()
	if last {
		return h.file.Close()
	}
	return nil
}
