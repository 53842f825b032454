package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire/compress"
)

// verified is one line of "kaja log verify --json".
type verified struct {
	Dir          string    `json:"dir"`
	Segments     int       `json:"segments"`
	Batches      int       `json:"batches"`
	Records      int64     `json:"records"`
	Bytes        int64     `json:"bytes"`
	FirstOffset  int64     `json:"firstOffset"`
	EndOffset    int64     `json:"endOffset"` // exclusive
	IndexEntries int       `json:"indexEntries"`
	Notes        []string  `json:"notes,omitempty"` // what the next start finishes, removes or makes again
	Problems     []problem `json:"problems"`
}

type problem struct {
	File string `json:"file"`
	Pos  int64  `json:"pos"` // bytes; -1: not at one place
	What string `json:"what"`
}

func (a *app) logVerifyCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify DIR...",
		Short: "Check every batch, record, index, snapshot and checkpoint of partitions that nobody uses",
		Long: `Reads every file of the partitions in DIR (one of log.dirs, or the directory of one partition), kaja's or Kafka's, and
changes nothing. The broker that owns the files must be stopped.

Exit codes: 0 all is well, 3 something is damaged (the output says what and where), 1 the files could not be read.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return commandError(a.verify(args, asJSON)) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON object a partition")
	return c
}

func (a *app) verify(args []string, asJSON bool) error {
	ctx, cancel := a.signalled()
	defer cancel()
	var fs vfs.OS
	var dirs []string
	for _, arg := range args {
		found, err := partitionDirs(fs, filepath.ToSlash(arg))
		if err != nil {
			return err
		}
		dirs = append(dirs, found...)
	}
	if len(dirs) == 0 {
		return fmt.Errorf("no partition was found in %v", args)
	}
	bar := newProgress(a.stderr, logBytes(fs, dirs))
	codecs, damaged := compress.New(), 0
	if !asJSON {
		_, _ = fmt.Fprintf(a.stdout, "%-40s %8s %9s %11s %10s  %s\n", "PARTITION", "SEGMENTS", "BATCHES", "RECORDS", "SIZE", "OFFSETS")
	}
	for _, dir := range dirs {
		r, err := log.Verify(ctx, log.VerifyOptions{FS: fs, Dir: dir, Codecs: codecs, MaxDecompressedBytes: math.MaxInt32, Progress: bar.add})
		if err != nil {
			return err
		}
		if len(r.Problems) > 0 {
			damaged++
		}
		if err := a.showVerified(dir, &r, asJSON); err != nil {
			return err
		}
	}
	if !asJSON {
		_, _ = fmt.Fprintf(a.stdout, "\n%d partitions, %s, %d damaged\n", len(dirs), size(bar.done), damaged)
	}
	if damaged > 0 {
		return fmt.Errorf("%w in %d of %d partitions", errDamaged, damaged, len(dirs))
	}
	return nil
}

func (a *app) showVerified(dir string, r *log.Report, asJSON bool) error {
	if asJSON {
		out := verified{Dir: dir, Segments: r.Segments, Batches: r.Batches, Records: r.Records, Bytes: r.Bytes, FirstOffset: int64(r.First),
			EndOffset: int64(r.End), IndexEntries: r.IndexEntries, Notes: r.Notes, Problems: []problem{}}
		for _, p := range r.Problems {
			out.Problems = append(out.Problems, problem{p.File, p.Pos, p.What})
		}
		return json.NewEncoder(a.stdout).Encode(out)
	}
	_, err := fmt.Fprintf(a.stdout, "%-40s %8d %9d %11d %10s  %d to %d\n", baseDir(dir), r.Segments, r.Batches, r.Records, size(r.Bytes), r.First, r.End)
	for _, note := range r.Notes {
		_, _ = fmt.Fprintf(a.stdout, "    note     %s\n", note)
	}
	for _, p := range r.Problems {
		where := p.File
		if p.Pos >= 0 {
			where = fmt.Sprintf("%s at byte %d", p.File, p.Pos)
		}
		_, _ = fmt.Fprintf(a.stdout, "    DAMAGED  %s: %s\n", where, p.What)
	}
	return err
}
