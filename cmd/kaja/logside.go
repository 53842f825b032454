package main

import (
	"fmt"
	"strings"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// What dump shows of the files beside a .log.

func (d *dumper) padding(n int) error {
	if n == 0 {
		return nil
	}
	return d.emit(map[string]any{"type": "padding", "entries": n}, "  %d entries of zeros follow: the segment was not closed\n", n)
}

func (d *dumper) index(name string, base wire.Offset) error {
	entries, padding, err := log.ReadIndexFile(d.fs, name, base)
	for _, e := range entries {
		if err := d.emit(map[string]any{"type": "index", "offset": e.Offset, "position": e.Pos}, "  offset %-20d position %d\n", e.Offset, e.Pos); err != nil {
			return err
		}
	}
	if err == nil {
		err = d.padding(padding)
	}
	return err
}

func (d *dumper) timeIndex(name string, base wire.Offset) error {
	entries, padding, err := log.ReadTimeIndexFile(d.fs, name, base)
	for _, e := range entries {
		if err := d.emit(map[string]any{"type": "timeindex", "timestamp": e.Timestamp, "offset": e.Offset}, "  time %s  offset %d\n", stamp(e.Timestamp), e.Offset); err != nil {
			return err
		}
	}
	if err == nil {
		err = d.padding(padding)
	}
	return err
}

func (d *dumper) txnIndex(name string, base wire.Offset) error {
	entries, err := log.ReadTxnIndexFile(d.fs, name, base)
	for _, e := range entries {
		object := map[string]any{"type": "txnindex", "producerId": e.ProducerID, "firstOffset": e.First, "lastOffset": e.Last, "lastStableOffset": e.LastStable}
		if err := d.emit(object, "  producer %-12d aborted %d to %d  last stable offset %d\n", e.ProducerID, e.First, e.Last, e.LastStable); err != nil {
			return err
		}
	}
	return err
}

func (d *dumper) snapshot(name string, end wire.Offset) error {
	entries, used, there, err := log.ReadSnapshotFile(d.fs, name, end)
	if err != nil {
		return err
	}
	for _, e := range entries {
		object := map[string]any{"type": "producer", "producerId": e.ProducerID, "producerEpoch": e.Epoch, "coordinatorEpoch": e.CoordinatorEpoch,
			"lastTimestamp": e.LastTimestamp, "currentTxnFirstOffset": e.TxnFirst}
		text := fmt.Sprintf("  producer %-12d epoch %-6d coordinator epoch %-6d last %s", e.ProducerID, e.Epoch, e.CoordinatorEpoch, stamp(e.LastTimestamp))
		if e.TxnFirst != wire.NoOffset {
			text += fmt.Sprintf("  open transaction from %d", e.TxnFirst)
		}
		var batches []map[string]any
		var b strings.Builder
		for _, x := range e.Batches {
			batches = append(batches, map[string]any{"firstSequence": x.FirstSequence, "lastSequence": x.LastSequence,
				"firstOffset": x.FirstOffset, "lastOffset": x.LastOffset, "timestamp": x.Timestamp})
			fmt.Fprintf(&b, "\n      sequences %d to %d  offsets %d to %d  %s", x.FirstSequence, x.LastSequence, x.FirstOffset, x.LastOffset, stamp(x.Timestamp))
		}
		object["batches"] = batches
		if err := d.emit(object, "%s%s\n", text, b.String()); err != nil {
			return err
		}
	}
	if there && !used {
		return &log.CorruptError{File: strings.TrimSuffix(name, ".snapshot") + ".kaja-window", Reason: "does not belong to its snapshot"}
	}
	return nil
}

func (d *dumper) epochs(name string) error {
	entries, err := log.ReadEpochsFile(d.fs, name)
	for _, e := range entries {
		if err := d.emit(map[string]any{"type": "epoch", "epoch": e.Epoch, "startOffset": e.Start}, "  epoch %-8d from offset %d\n", e.Epoch, e.Start); err != nil {
			return err
		}
	}
	return err
}

// text shows a file that people can read as it is.
func (d *dumper) text(name string) error {
	data, err := vfs.ReadFile(d.fs, name)
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		if err := d.emit(map[string]any{"type": "line", "text": line}, "  %s\n", line); err != nil {
			return err
		}
	}
	return nil
}
