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
//
// The last entry is bare while no record follows it: a leader has noted where its epoch begins. The checkpoint file lacks a
// bare entry, because the next start would drop it anyway (Kafka: LogLoader.load), and so that becoming the leader of many
// idle partitions writes no file. Whatever writes the file writes all of it.
type epochs struct {
	entries []epochEntry
	file    []epochEntry // what the checkpoint file holds, be it durable or not; its memory is never written to
	bare    bool
	dirty   bool // what the checkpoint file durably holds is not what a start has to find
	// ahead: the file lacks only epochs of records at and beyond lacks, which tell them to a start that reads them again.
	ahead bool
	lacks wire.Offset
}

func (c *epochs) latest() (epochEntry, bool) {
	if len(c.entries) == 0 {
		return epochEntry{epoch: wire.NoLeaderEpoch, start: wire.NoOffset}, false
	}
	return c.entries[len(c.entries)-1], true
}

// assign notes that a record of epoch lies at start.
func (c *epochs) assign(epoch wire.LeaderEpoch, start wire.Offset) {
	followed := c.bare
	c.bare = false
	if !c.put(epoch, start) && !followed {
		return
	}
	if !c.ahead || start < c.lacks { // a truncation may have taken what lay between
		c.ahead, c.lacks = true, start
	}
}

// lacksFrom reports whether the file lacks only entries that begin at or beyond active, the base of the active segment. They may
// wait then for whatever writes the file next, and ahead says so.
func (c *epochs) lacksFrom(active wire.Offset) bool {
	entries, n := c.written(), len(c.file)
	if n >= len(entries) || !slices.Equal(entries[:n], c.file) || entries[n].start < active {
		return false
	}
	c.ahead, c.lacks = true, entries[n].start
	return true
}

// synced notes that what the file holds is durable.
func (c *epochs) synced() {
	c.dirty = false
	if c.settled() {
		c.ahead = false
	}
}

// rebuilt notes that every entry was taken from the batches, before any is appended. The next flush writes the file, and another
// start without one would do the same: so it is not ahead, and leaves the recovery point where it is.
func (c *epochs) rebuilt() { c.dirty, c.ahead = true, false }

// durable notes that the file durably holds every entry.
func (c *epochs) durable() { c.dirty, c.ahead = false, false }

// note notes that epoch starts at start, the end of the log, and that it has no record yet.
func (c *epochs) note(epoch wire.LeaderEpoch, start wire.Offset) {
	if !c.put(epoch, start) {
		return
	}
	c.bare = true
	c.dirty = c.dirty || !c.settled() && !c.behind()
}

// put adds the entry, unless it or a later one is known there already. Entries that contradict it (a start at or beyond
// the new one) go away: they hold no record (Kafka: LeaderEpochFileCache.assign).
func (c *epochs) put(epoch wire.LeaderEpoch, start wire.Offset) bool {
	if last, ok := c.latest(); epoch < 0 || ok && last.epoch >= epoch && last.start <= start {
		return false
	}
	keep := len(c.entries)
	for keep > 0 && (c.entries[keep-1].epoch >= epoch || c.entries[keep-1].start >= start) {
		keep--
	}
	c.entries = append(c.entries[:keep:keep], epochEntry{epoch, start})
	return true
}

// settled reports whether the file holds what a start has to find: all entries but a bare one, and at most others that begin
// where the bare one does, at the end of the log.
func (c *epochs) settled() bool {
	return slices.Equal(c.written(), c.filed())
}

// filed are the entries of the file, without those that begin where a bare one does.
func (c *epochs) filed() []epochEntry {
	file := c.file
	if c.bare {
		last := c.entries[len(c.entries)-1]
		for len(file) > 0 && file[len(file)-1].start >= last.start {
			file = file[:len(file)-1]
		}
	}
	return file
}

// behind reports whether the file lacks only what ahead says.
func (c *epochs) behind() bool {
	entries, file := c.written(), c.filed()
	n := len(file)
	return c.ahead && n < len(entries) && slices.Equal(entries[:n], file) && entries[n].start >= c.lacks
}

// written are the entries without a bare one.
func (c *epochs) written() []epochEntry {
	if c.bare {
		return c.entries[:len(c.entries)-1]
	}
	return c.entries
}

// wrote notes that the file was replaced by what encode gives.
func (c *epochs) wrote() { c.file, c.bare = c.entries, false }

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
		c.entries, c.bare = slices.Clone(c.entries[:n]), false
		c.dirty = c.dirty || !c.settled()
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
	c.dirty = c.dirty || !c.settled()
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
