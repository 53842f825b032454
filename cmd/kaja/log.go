package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

// exitDamaged is the exit code of "kaja log verify" when something is wrong with the files, and of "kaja log dump" when a
// file could not be read to its end.
const exitDamaged = 3

// errDamaged ends a command whose output has said what is wrong.
var errDamaged = errors.New("damaged files were found")

// progressEvery is the time between two lines of progress, and how long a command may be silent before the first.
const progressEvery = 2 * time.Second

func (a *app) logCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "log",
		Short: "Look into the files of partitions, kaja's or Kafka's",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(a.logDumpCommand(), a.logVerifyCommand())
	return c
}

// partitionDirs gives dir itself if it is the directory of a partition, else those in it.
func partitionDirs(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(names, isSegment) {
		return []string{dir}, nil
	}
	var out []string
	for _, name := range names {
		sub := path.Join(dir, name)
		info, err := fs.Stat(sub)
		if err != nil || !info.Dir {
			continue
		}
		inside, err := fs.List(sub)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(inside, isSegment) {
			out = append(out, sub)
		}
	}
	return out, nil
}

func isSegment(name string) bool {
	_, suffix, ok := log.ParseFileName(name)
	return ok && suffix == ".log"
}

// logBytes is the size of all .log files of some partitions.
func logBytes(fs vfs.FS, dirs []string) (sum int64) {
	for _, dir := range dirs {
		names, err := fs.List(dir)
		if err != nil {
			continue
		}
		for _, name := range names {
			if info, err := fs.Stat(path.Join(dir, name)); err == nil && isSegment(name) {
				sum += info.Size
			}
		}
	}
	return sum
}

// progress tells how far a long command is, on standard error.
type progress struct {
	w           io.Writer
	total, done int64
	began, last time.Time
}

func newProgress(w io.Writer, total int64) *progress {
	now := time.Now()
	return &progress{w: w, total: total, began: now, last: now}
}

func (p *progress) add(n int64) {
	p.done += n
	now := time.Now()
	if now.Sub(p.last) < progressEvery {
		return
	}
	p.last = now
	took := now.Sub(p.began)
	left := time.Duration(0)
	if p.done > 0 {
		left = time.Duration(float64(took) / float64(p.done) * float64(p.total-p.done)).Round(time.Second)
	}
	_, _ = fmt.Fprintf(p.w, "%s of %s (%.0f %%), %s/s, about %s left\n", size(p.done), size(p.total),
		100*float64(p.done)/float64(max(p.total, 1)), size(int64(float64(p.done)/took.Seconds())), left)
}

// size is a number of bytes for people.
func size(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// signalled gives a context that ends with the first signal.
func (a *app) signalled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// commandError is what a command of this group ends with.
func commandError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errDamaged):
		return &failure{err, exitDamaged}
	case errors.Is(err, iofs.ErrNotExist):
		return &failure{fmt.Errorf("%w; give a file, the directory of a partition, or one of log.dirs", err), exitFatal}
	}
	return &failure{err, exitFatal}
}

// baseDir is the name of a partition's directory.
func baseDir(dir string) string { return path.Base(strings.TrimSuffix(dir, "/")) }
