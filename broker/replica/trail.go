package replica

import (
	"sort"

	"github.com/kajamq/kaja/wire"
)

// maxTrail bounds the memory of a trail. Beyond it neighbours are merged, so that bytes count a little early, which at
// worst ends a long poll below its min bytes.
const maxTrail = 1024

// trail maps offsets of the newest appends to bytes: how many bytes were appended up to an offset, counted from an
// arbitrary start. It lets a long poll count what a move of the high watermark made readable. Pure.
type trail struct {
	steps []trailStep // ascending; those before head are forgotten
	head  int
	base  int64 // bytes of all that is forgotten
}

type trailStep struct {
	end   wire.Offset // exclusive
	bytes int64       // up to end, from the trail's start
}

// total is the number of bytes appended so far.
func (t *trail) total() int64 {
	if len(t.steps) > t.head {
		return t.steps[len(t.steps)-1].bytes
	}
	return t.base
}

// append notes that bytes were appended and that the log now ends at end.
func (t *trail) append(end wire.Offset, bytes int64) {
	if len(t.steps)-t.head >= maxTrail {
		t.merge()
	}
	if t.head > 64 && t.head*2 >= len(t.steps) {
		t.steps = t.steps[:copy(t.steps, t.steps[t.head:])]
		t.head = 0
	}
	t.steps = append(t.steps, trailStep{end: end, bytes: t.total() + bytes})
}

// merge halves the number of steps: the first end of two stands for both.
func (t *trail) merge() {
	live, n := t.steps[t.head:], 0
	for i := 0; i < len(live); i += 2 {
		s := live[i]
		if i+1 < len(live) {
			s.bytes = live[i+1].bytes
		}
		t.steps[n] = s
		n++
	}
	t.steps, t.head = t.steps[:n], 0
}

// at is the number of bytes appended in batches that end at or before o.
func (t *trail) at(o wire.Offset) int64 {
	live := t.steps[t.head:]
	if len(live) > 0 && live[len(live)-1].end <= o {
		return live[len(live)-1].bytes
	}
	i := sort.Search(len(live), func(i int) bool { return live[i].end > o })
	if i == 0 {
		return t.base
	}
	return live[i-1].bytes
}

// forget drops what lies at or before o; at must not be asked below it any more.
func (t *trail) forget(o wire.Offset) {
	for t.head < len(t.steps) && t.steps[t.head].end <= o {
		t.base = t.steps[t.head].bytes
		t.head++
	}
	if t.head == len(t.steps) {
		t.steps, t.head = t.steps[:0], 0
	}
}

// truncate drops the steps beyond o. Bytes already counted stay counted.
func (t *trail) truncate(o wire.Offset) {
	n := t.total()
	for len(t.steps) > t.head && t.steps[len(t.steps)-1].end > o {
		t.steps = t.steps[:len(t.steps)-1]
	}
	if len(t.steps) > t.head {
		t.steps[len(t.steps)-1].bytes = n
	} else {
		t.base = n
	}
}
