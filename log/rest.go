package log

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Resting is what a clean stop knows of a log: enough to serve it until somebody needs what is in its files. Only a log
// without a transaction that holds back its LSO, and without files that wait for their removal, has one.
type Resting struct {
	TopicID    wire.UUID
	Changed    int64            // modification time of the directory, in nanoseconds
	Start, End wire.Offset      // log start offset, exclusive end; everything is durable
	Epoch      wire.LeaderEpoch // the newest one with a record, NoLeaderEpoch if there is none
	EpochStart wire.Offset      // where it begins, or NoOffset
	Segments   []RestingSegment // ascending, never empty; the last one is active
}

// RestingSegment is one segment of a Resting.
type RestingSegment struct {
	Base    wire.Offset
	Size    int64
	Changed int64 // modification time of the .log, in nanoseconds
	MaxTime int64 // largest timestamp, if Dated
	Dated   bool
}

func (r *Resting) active() *RestingSegment { return &r.Segments[len(r.Segments)-1] }

// Unchanged reports whether the directory is as the clean stop has left it, as far as its modification time and those of its
// .log files with their lengths tell: nothing in it was made, removed, renamed, or written to. A side file that was
// written over in place is noticed when it is used.
func (r *Resting) Unchanged(fs vfs.FS, dir string) bool {
	info, err := fs.Stat(dir)
	if err != nil || !info.Dir || info.ModTime.UnixNano() != r.Changed {
		return false
	}
	for i := range r.Segments {
		s := &r.Segments[i]
		info, err := fs.Stat(dir + "/" + fileName(s.Base, suffixLog))
		if err != nil || info.Dir || info.Size != s.Size || info.ModTime.UnixNano() != s.Changed {
			return false
		}
	}
	return true
}

// Rest gives the log in o.Dir without touching a file: r says how it was left, and whoever calls has made sure that it is
// Unchanged. Its files are read when they are first needed, by the way of Open after a clean stop. Should the log not be
// then what r says, it refuses everything with ErrNotAsLeft, and nothing is cut off or removed: its offsets were given out.
func Rest(o Options, r *Resting) *Log {
	l := newLog(&o, newDirectory(&o))
	l.start.Store(int64(r.Start))
	l.leo.Store(int64(r.End))
	l.flushed.Store(int64(r.End))
	l.unstable.Store(int64(wire.NoOffset))
	if r.Epoch != wire.NoLeaderEpoch {
		l.epochs.entries = []epochEntry{{r.Epoch, r.EpochStart}}
		l.epochs.file = l.epochs.entries
	}
	l.resting.Store(r)
	return l
}

// Resting says how a log was left that Close has closed without an error; nil where the next start has to open it.
func (l *Log) Resting() *Resting {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed || l.failed != nil {
		return nil
	}
	if r := l.resting.Load(); r != nil {
		return r
	}
	if len(l.deleted) > 0 || len(l.producers.open) > 0 || len(l.producers.ended) > 0 || l.producers.end != l.snapshotEnd {
		return nil
	}
	r := &Resting{TopicID: l.topicID, Start: l.StartOffset(), End: l.EndOffset(), Epoch: wire.NoLeaderEpoch, EpochStart: wire.NoOffset}
	for _, e := range l.epochs.written() {
		if e.start < r.End { // any other one a start drops
			r.Epoch, r.EpochStart = e.epoch, e.start
		}
	}
	info, err := l.dir.fs.Stat(l.Dir())
	if err != nil {
		return nil
	}
	r.Changed = info.ModTime.UnixNano()
	for _, s := range l.view.Load().segments {
		info, err := l.dir.fs.Stat(s.path(suffixLog))
		if err != nil || info.Size != s.size.Load() {
			return nil
		}
		s.mu.Lock()
		r.Segments = append(r.Segments, RestingSegment{Base: s.base, Size: info.Size, Changed: info.ModTime.UnixNano(), MaxTime: s.maxTime, Dated: s.timedBy != byNothing})
		s.mu.Unlock()
	}
	return r
}

// Rests reports whether nothing has needed the files of the log since Rest.
func (l *Log) Rests() bool { return l.resting.Load() != nil }

// Wake reads what a resting log has not read. Everything that needs it does so by itself; who asks for what is told without
// an error, as epochs and producers are, calls it before. Errors: ErrStorage, ErrNotAsLeft, ErrClosed.
func (l *Log) Wake() error {
	if l.resting.Load() == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wakeLocked()
}

// WakeForEpoch is Wake where EndOffsetForEpoch could not tell otherwise where epoch e ends.
func (l *Log) WakeForEpoch(e wire.LeaderEpoch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.restsFromLocked(func(first epochEntry) bool { return e >= first.epoch }) {
		return nil
	}
	return l.wakeLocked()
}

func (l *Log) wakeLocked() error {
	r := l.resting.Load()
	if r == nil {
		return nil
	}
	if err := l.usableLocked(); err != nil {
		return err
	}
	n, err := l.load(r)
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrTopicID) {
		err = fmt.Errorf("%w: %w", ErrNotAsLeft, err)
		l.breakLocked(err)
	}
	if err != nil {
		return l.failLocked(err)
	}
	bare, noted := l.epochs.latest()
	noted = noted && l.epochs.bare
	l.epochs, l.producers, l.snapshotEnd, l.snapshots = n.epochs, n.producers, n.snapshotEnd, n.snapshots
	l.namesDirty, l.prepared = n.namesDirty, n.prepared
	if noted {
		l.epochs.note(bare.epoch, bare.start)
	}
	l.noteLacksLocked()
	l.view.Store(n.view.Load())
	l.resting.Store(nil)
	return nil
}

// load opens the log as after a clean stop, and fails where that would change what r says.
func (l *Log) load(r *Resting) (*Log, error) {
	o := Options{FS: l.dir.fs, Dir: l.Dir(), TP: l.tp, TopicID: l.topicID, Config: l.Config(), Verified: true, RecoveryPoint: r.End,
		LogStartOffset: r.Start, Clean: true, Wall: l.wall, Logger: l.logger, Codecs: l.codecs}
	id, err := ReadTopicID(o.FS, o.Dir)
	switch {
	case err != nil && !errors.Is(err, ErrCorrupt):
		return nil, storageErr("read", o.Dir+"/"+metadataFile, err)
	case err != nil:
		return nil, err
	case id != l.topicID:
		return nil, fmt.Errorf("%s has topic id %s, want %s: %w", o.Dir, id, l.topicID, ErrTopicID)
	}
	n := newLog(&o, l.dir)
	if _, err := n.open(context.Background(), &o, r); err != nil {
		return nil, err
	}
	last, _ := n.epochs.latest()
	if n.StartOffset() != r.Start || n.EndOffset() != r.End || last != (epochEntry{r.Epoch, r.EpochStart}) || n.unstable.Load() != int64(wire.NoOffset) {
		return nil, r.changed(o.Dir)
	}
	return n, nil
}

// fits reports whether these are the segments of r.
func (r *Resting) fits(segments []*segment) bool {
	if len(segments) != len(r.Segments) {
		return false
	}
	for i, s := range segments {
		if s.base != r.Segments[i].Base || s.size.Load() != r.Segments[i].Size {
			return false
		}
	}
	return true
}

// names reports whether these are the names of a directory with the segments of r and none that is on its way in.
func (r *Resting) names(names []string) bool {
	n := 0
	for _, name := range names {
		base, suffix, ok := parseName(name)
		if ok && strings.HasSuffix(suffix, suffixSwap) || ok && suffix == suffixLog && (n == len(r.Segments) || r.Segments[n].Base != base) {
			return false
		}
		if ok && suffix == suffixLog {
			n++
		}
	}
	return n == len(r.Segments)
}

func (r *Resting) changed(dir string) error {
	return &CorruptError{File: dir, Reason: "segments or offsets are not those that were served"}
}

func (r *Resting) size() int64 {
	var sum int64
	for i := range r.Segments {
		sum += r.Segments[i].Size
	}
	return sum
}

// base is the base offset of the segment that holds o.
func (r *Resting) base(o wire.Offset) wire.Offset {
	base := r.Segments[0].Base
	for i := range r.Segments {
		if r.Segments[i].Base <= o {
			base = r.Segments[i].Base
		}
	}
	return base
}
