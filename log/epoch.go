package log

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// epochEntry says at which offset a leader epoch starts.
type epochEntry struct {
	epoch wire.LeaderEpoch
	start wire.Offset
}

// epochs is the leader-epoch cache: entries with both fields ascending strictly by epoch and never falling by offset.
type epochs struct {
	entries []epochEntry
	dirty   bool // differs from what the checkpoint file durably holds
}

func (c *epochs) latest() (epochEntry, bool) {
	if len(c.entries) == 0 {
		return epochEntry{epoch: wire.NoLeaderEpoch, start: wire.NoOffset}, false
	}
	return c.entries[len(c.entries)-1], true
}

// assign notes that epoch starts at start, unless it or a later one is known there already. Entries that contradict it
// (a start at or beyond the new one) go away: they hold no record (Kafka: LeaderEpochFileCache.assign).
func (c *epochs) assign(epoch wire.LeaderEpoch, start wire.Offset) bool {
	if last, ok := c.latest(); epoch < 0 || ok && last.epoch >= epoch && last.start <= start {
		return false
	}
	keep := len(c.entries)
	for keep > 0 && (c.entries[keep-1].epoch >= epoch || c.entries[keep-1].start >= start) {
		keep--
	}
	c.entries = append(c.entries[:keep:keep], epochEntry{epoch, start})
	c.dirty = true
	return true
}

// truncateEnd drops the entries that start at or beyond end.
func (c *epochs) truncateEnd(end wire.Offset) {
	n := len(c.entries)
	if planted.On(planted.EpochsNotCut) {
		return
	}
	for n > 0 && c.entries[n-1].start >= end {
		n--
	}
	if n < len(c.entries) {
		c.entries = slices.Clone(c.entries[:n])
		c.dirty = true
	}
}

// truncateStart drops what ends before start, and lets the entry that covers it begin there.
func (c *epochs) truncateStart(start wire.Offset) {
	n := 0
	for n < len(c.entries) && c.entries[n].start <= start {
		n++
	}
	if n == 0 || n == 1 && c.entries[0].start == start {
		return
	}
	c.entries = slices.Clone(c.entries[n-1:])
	c.entries[0].start = start
	c.dirty = true
}

// endOffset answers OffsetForLeaderEpoch: the largest known epoch at or below e, and the exclusive end of it, which is
// leo for the latest one. It is false where Kafka answers "undefined".
func (c *epochs) endOffset(e wire.LeaderEpoch, leo wire.Offset) (wire.LeaderEpoch, wire.Offset, bool) {
	last, ok := c.latest()
	switch {
	case !ok || e < 0 || e > last.epoch:
		return wire.NoLeaderEpoch, wire.NoOffset, false
	case e == last.epoch:
		return e, leo, true
	}
	next := slices.IndexFunc(c.entries, func(x epochEntry) bool { return x.epoch > e })
	if next == 0 {
		return e, c.entries[0].start, true
	}
	return c.entries[next-1].epoch, c.entries[next].start, true
}

// at gives the epoch that covers offset o.
func (c *epochs) at(o wire.Offset) wire.LeaderEpoch {
	for i := len(c.entries) - 1; i >= 0; i-- {
		if c.entries[i].start <= o {
			return c.entries[i].epoch
		}
	}
	return wire.NoLeaderEpoch
}

// encode gives the text of a leader-epoch-checkpoint file.
func (c *epochs) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(c.entries))
	for _, e := range c.entries {
		fmt.Fprintf(&b, "%d %d\n", e.epoch, e.start)
	}
	return b.Bytes()
}

// decodeEpochs reads a leader-epoch-checkpoint file.
func decodeEpochs(file string, data []byte) (epochs, error) {
	corrupt := func(line int, reason string) (epochs, error) {
		return epochs{}, &CorruptError{File: file, Pos: 0, Reason: fmt.Sprintf("line %d: %s", line+1, reason)}
	}
	text, ended := strings.CutSuffix(string(data), "\n")
	lines := strings.Split(text, "\n")
	if !ended || len(lines) < 2 || lines[0] != "0" {
		return corrupt(0, "not a version 0 checkpoint")
	}
	n, err := strconv.Atoi(lines[1])
	if err != nil || n != len(lines)-2 {
		return corrupt(1, "count does not fit the number of entries")
	}
	var c epochs
	for i, line := range lines[2:] {
		a, b, ok := strings.Cut(line, " ")
		epoch, err1 := strconv.ParseInt(a, 10, 32)
		start, err2 := strconv.ParseInt(b, 10, 64)
		if !ok || err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return corrupt(i+2, "not an epoch and an offset")
		}
		e := epochEntry{wire.LeaderEpoch(epoch), wire.Offset(start)}
		if last, ok := c.latest(); ok && (e.epoch <= last.epoch || e.start < last.start) {
			return corrupt(i+2, "entries do not ascend")
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}
