package server

import (
	"math/bits"
	"sync"
)

const (
	minBufferShift = 10 // 1 KiB
	maxBufferShift = 22 // 4 MiB
	// unpooled marks a buffer that no pool takes back.
	unpooled = -1
)

// buffer is memory on loan from a bufferPool; its owner gives it back once.
type buffer struct {
	b     []byte // cap is the class's size unless append has moved it
	class int
}

// bufferPool lends buffers by size class. A class holds a power of two and a sixteenth, so that a batch of a round size
// fits with its request around it. Larger ones are made and left to the collector. Safe for concurrent use.
type bufferPool struct {
	classes [maxBufferShift - minBufferShift + 1]sync.Pool
}

func classSize(class int) int {
	n := 1 << (minBufferShift + class)
	return n + n/16
}

// classOf is the smallest class that holds n bytes, or unpooled.
func classOf(n int) int {
	if n <= classSize(0) {
		return 0
	}
	class := bits.Len(uint(n-1)) - minBufferShift
	if class > 0 && n <= classSize(class-1) {
		class--
	}
	if class > maxBufferShift-minBufferShift {
		return unpooled
	}
	return class
}

// sizeFor is the capacity of the buffer that get(n) gives.
func sizeFor(n int) int {
	if class := classOf(n); class != unpooled {
		return classSize(class)
	}
	return n
}

// get lends a buffer of length 0 with room for n bytes.
func (p *bufferPool) get(n int) *buffer {
	class := classOf(n)
	if class == unpooled {
		return &buffer{b: make([]byte, 0, n), class: unpooled}
	}
	if buf, ok := p.classes[class].Get().(*buffer); ok {
		return buf
	}
	return &buffer{b: make([]byte, 0, classSize(class)), class: class}
}

// put takes buf back; nil is ignored. A buffer that append has moved goes to the class its new memory fills.
func (p *bufferPool) put(buf *buffer) {
	if buf == nil {
		return
	}
	for buf.class >= 0 && cap(buf.b) > classSize(buf.class) {
		switch {
		case buf.class == maxBufferShift-minBufferShift:
			buf.class = unpooled
		case cap(buf.b) < classSize(buf.class+1):
			buf.b = buf.b[:0:classSize(buf.class)]
		default:
			buf.class++
		}
	}
	if buf.class == unpooled {
		return
	}
	buf.b = buf.b[:0]
	p.classes[buf.class].Put(buf)
}
