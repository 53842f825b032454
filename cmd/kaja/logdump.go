package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

// dumper writes the content of files, as a table or as one JSON object a line.
type dumper struct {
	a        *app
	fs       vfs.OS
	codecs   *compress.Codecs
	ctx      context.Context //nolint:containedctx // lives as long as the command
	json     bool
	records  bool
	from     wire.Offset
	most     int // records or, without records, batches; 0: all
	left     int
	damaged  bool
	progress *progress
}

// errEnough ends the reading of a file when --max was reached.
var errEnough = errors.New("enough")

func (a *app) logDumpCommand() *cobra.Command {
	d := &dumper{a: a}
	var batches bool
	var from int64
	c := &cobra.Command{
		Use:   "dump PATH...",
		Short: "Show batches, records, indexes, snapshots and checkpoints",
		Long: `Shows the content of files of a partition, kaja's or Kafka's: .log (and Kafka's .checkpoint), .index, .timeindex, .txnindex,
.snapshot with its .kaja-window, leader-epoch-checkpoint, the offset checkpoints of a log directory, partition.metadata. A
directory stands for its files. Records of __consumer_offsets, __transaction_state and __cluster_metadata are decoded.

Exit codes: 0, 3 a file is damaged, 1 it could not be read.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d.records, d.from, d.left = !batches, wire.Offset(from), d.most
			return commandError(d.run(args))
		},
	}
	c.Flags().BoolVar(&d.json, "json", false, "one JSON object a line")
	c.Flags().BoolVar(&batches, "batches", false, "batches without their records")
	c.Flags().Int64Var(&from, "offset", 0, "begin with the batch that holds this offset")
	c.Flags().IntVar(&d.most, "max", 0, "stop after so many batches of each .log file; 0: all")
	return c
}

func (d *dumper) run(args []string) error {
	ctx, cancel := d.a.signalled()
	defer cancel()
	d.ctx, d.codecs = ctx, compress.New()
	for _, arg := range args {
		name := filepath.ToSlash(arg)
		info, err := d.fs.Stat(name)
		if err != nil {
			return err
		}
		files := []string{name}
		if info.Dir {
			if files, err = d.filesIn(name); err != nil {
				return err
			}
		}
		for _, f := range files {
			if err := d.file(f); err != nil {
				return err
			}
		}
	}
	if d.damaged {
		return errDamaged
	}
	return nil
}

func (d *dumper) filesIn(dir string) ([]string, error) {
	names, err := d.fs.List(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names {
		if kindOf(name) != "" {
			out = append(out, path.Join(dir, name))
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no file of a partition", dir)
	}
	return out, nil
}

// kindOf is what a file is by its name; "" for what dump does not know.
func kindOf(name string) string {
	_, suffix, ok := log.ParseFileName(name)
	suffix = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(suffix, ".deleted"), ".swap"), ".cleaned")
	switch {
	case ok && strings.HasSuffix(suffix, ".checkpoint"):
		return ".log" // a snapshot of Kafka's metadata log
	case ok && (suffix == ".log" || suffix == ".index" || suffix == ".timeindex" || suffix == ".txnindex" || suffix == ".snapshot"):
		return suffix
	case name == "leader-epoch-checkpoint", name == "partition.metadata":
		return name
	case strings.HasSuffix(name, "-offset-checkpoint"):
		return "offset-checkpoint"
	}
	return ""
}

// file shows one file; damage is shown and remembered, so that the next file has its turn.
func (d *dumper) file(name string) error {
	kind, dir := kindOf(path.Base(name)), path.Dir(name)
	base, _, _ := log.ParseFileName(path.Base(name))
	if !d.json {
		d.print("\n%s\n", name)
	}
	var err error
	switch kind {
	case ".log":
		err = d.log(name, decoderOf(baseDir(dir)))
	case ".index":
		err = d.index(name, base)
	case ".timeindex":
		err = d.timeIndex(name, base)
	case ".txnindex":
		err = d.txnIndex(name, base)
	case ".snapshot":
		err = d.snapshot(name, base)
	case "leader-epoch-checkpoint":
		err = d.epochs(name)
	case "offset-checkpoint", "partition.metadata":
		err = d.text(name)
	default:
		return fmt.Errorf("%s: not the name of a file of a partition", name)
	}
	var corrupt *log.CorruptError
	var old *log.OldFormatError
	if errors.As(err, &corrupt) || errors.As(err, &old) {
		d.damaged = true
		return d.emit(map[string]any{"file": name, "error": err.Error()}, "  DAMAGED  %v\n", err)
	}
	return err
}

func (d *dumper) print(format string, args ...any) { _, _ = fmt.Fprintf(d.a.stdout, format, args...) }

// emit writes one thing: a JSON object, or a line.
func (d *dumper) emit(object map[string]any, format string, args ...any) error {
	if d.json {
		return json.NewEncoder(d.a.stdout).Encode(object)
	}
	_, err := fmt.Fprintf(d.a.stdout, format, args...)
	return err
}

// log shows the batches of a .log file.
func (d *dumper) log(name string, decode decoder) error {
	info, err := d.fs.Stat(name)
	if err != nil {
		return err
	}
	d.progress, d.left = newProgress(d.a.stderr, info.Size), d.most
	if !d.json {
		d.print("  %-21s %9s %8s %5s %-6s %-11s %7s  %-24s %s\n", "OFFSETS", "POSITION", "SIZE", "EPOCH", "CODEC", "KIND", "RECORDS", "LARGEST TIME", "PRODUCER")
	}
	err = log.ReadLogFile(d.ctx, d.fs, name, func(b log.FileBatch) error {
		d.progress.add(int64(len(b.Batch)))
		if b.LastOffset() < d.from {
			return nil
		}
		if d.most > 0 {
			if d.left == 0 {
				return errEnough
			}
			d.left--
		}
		if err := d.batch(b); err != nil || !d.records {
			return err
		}
		return d.recordsOf(name, b, decode)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

func (d *dumper) batch(b log.FileBatch) error {
	kind := "data"
	switch {
	case b.Control():
		kind = "control"
	case b.Transactional():
		kind = "transaction"
	}
	producer := ""
	if b.ProducerID() >= 0 {
		producer = fmt.Sprintf("id %d epoch %d sequence %d to %d", b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.LastSequence())
	}
	object := map[string]any{
		"type": "batch", "baseOffset": b.BaseOffset(), "lastOffset": b.LastOffset(), "position": b.Pos, "size": b.Size(),
		"leaderEpoch": b.LeaderEpoch(), "magic": b.Magic(), "crc": b.CRC(), "codec": b.Codec().String(),
		"transactional": b.Transactional(), "control": b.Control(), "logAppendTime": b.LogAppendTime(), "records": b.Count(),
		"baseTimestamp": b.BaseTimestamp(), "maxTimestamp": b.MaxTimestamp(), "producerId": b.ProducerID(),
		"producerEpoch": b.ProducerEpoch(), "baseSequence": b.BaseSequence(), "lastSequence": b.LastSequence(),
	}
	if ms, ok := b.DeleteHorizon(); ok {
		object["deleteHorizon"] = ms
		producer = strings.TrimSpace(producer + " delete horizon " + stamp(ms))
	}
	offsets := fmt.Sprintf("%d to %d", b.BaseOffset(), b.LastOffset())
	return d.emit(object, "  %-21s %9d %8d %5d %-6s %-11s %7d  %-24s %s\n", offsets, b.Pos, b.Size(), b.LeaderEpoch(), b.Codec(), kind,
		b.Count(), stamp(b.MaxTimestamp()), producer)
}

func (d *dumper) recordsOf(name string, b log.FileBatch, decode decoder) error {
	payload, err := b.Records(d.codecs, nil, math.MaxInt32)
	if err != nil {
		return &log.CorruptError{File: name, Pos: b.Pos, Reason: err.Error()}
	}
	it := batch.Iterate(payload, b.Count())
	for it.Next() {
		r := &it.Record
		o := b.BaseOffset() + wire.Offset(r.OffsetDelta)
		object := map[string]any{"type": "record", "offset": o, "timestamp": r.Timestamp(b.Batch), "key": jsonBytes(r.Key), "value": jsonBytes(r.Value)}
		shown := fmt.Sprintf("key %s  value %s", quoted(r.Key), quoted(r.Value))
		switch {
		case b.Control():
			shown, object["decoded"] = decodeControl(r.Key, r.Value)
		case decode != nil:
			if text, fields, ok := decode(r.Key, r.Value); ok {
				shown, object["decoded"] = text, fields
			}
		}
		var headers []string
		for h := range r.Headers() {
			headers = append(headers, fmt.Sprintf("%s=%s", h.Key, quoted(h.Value)))
		}
		if len(headers) > 0 {
			object["headers"] = headers
			shown += "  headers " + strings.Join(headers, " ")
		}
		if err := d.emit(object, "    %-19d %s  %s\n", o, stamp(r.Timestamp(b.Batch)), shown); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return &log.CorruptError{File: name, Pos: b.Pos, Reason: err.Error()}
	}
	return nil
}

// stamp is a time for people; -1 is none.
func stamp(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// quoted shows bytes in one line of bounded length.
func quoted(b []byte) string {
	if b == nil {
		return "null"
	}
	const most = 200
	if len(b) > most {
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}
