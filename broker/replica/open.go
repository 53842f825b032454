package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// errStopped is what those are told who wait while the broker stops.
var errStopped error = kerr.NotLeaderForPartition

// Open reads the log directories, recovers the partitions that img gives this broker, applies img to them, and starts
// the flushers and the housekeeping. It returns when all are served.
//
// A partition that cannot be opened is taken out of service, logged by name, and fails nothing else. A directory of a
// partition that img does not know is logged by name and left alone, except that of a topic whose deletion img
// remembers, which is finished. Open fails when no log directory works or ctx ends.
func (m *Manager) Open(ctx context.Context, img *image.Image) error {
	began := m.o.Now()
	m.img.Store(img)
	var errs []error
	for _, d := range m.dirs {
		if err := d.failed(); err != nil {
			errs = append(errs, err)
			continue
		}
		err := d.read(m.o.PreviousBrokerEpoch)
		if err == nil {
			err = m.openVolume(d)
		}
		if err != nil {
			errs = append(errs, err)
			d.fail(err)
		}
	}
	if len(errs) == len(m.dirs) {
		return fmt.Errorf("open log directories: %w", errors.Join(errs...))
	}
	found := findings{replicas: map[wire.TopicPartition]place{}, futures: map[wire.TopicPartition][]place{}, aside: map[wire.TopicPartition][]place{}}
	for _, d := range m.dirs {
		if err := m.survey(d, img, found); err != nil {
			d.fail(err)
		}
		d.resting = nil
	}
	var work []*opening
	m.localReplicas(img, func(t *image.Topic, p *image.Partition) {
		if o := m.plan(img, t, p, found); o != nil {
			work = append(work, o)
		}
	})
	m.tellOrphans(found)
	if err := m.recoverAll(ctx, work, began); err != nil {
		return err
	}
	for _, d := range m.dirs {
		d.flusher.start()
	}
	m.configureMoves(img) // before one goes on
	var read int64
	logs, resting, news := 0, 0, newcomers{}
	for _, o := range work {
		if o.plog != nil {
			o.p.adopt(o.plog, max(o.p.dir().hws[o.p.TP], o.plog.StartOffset()))
		}
		m.publish(o.p)
		if o.to != nil {
			m.mover.resume(o.p, o.to)
		}
		m.applyTo(o.p, o.meta, news)
		read += o.recovery.BytesRead
		if plog := o.p.plog(); plog != nil {
			logs++
			if plog.Rests() {
				resting++
			}
		}
	}
	m.expect(news)
	for _, d := range m.dirs {
		// What was taken as it is or recovered need not be read again after a crash (and where another broker's compaction
		// left gaps between segments, must not).
		_ = d.checkpointRecoveryPoint() // an error has taken the directory offline or was logged
	}
	m.house.start()
	m.configureCleaner(img)
	m.scrub.start()
	m.isr.start()
	m.assigner.start()
	m.o.Logger.Info("partitions opened", slog.Int("partitions", len(work)), slog.Int("logs", logs), slog.Int("resting", resting), slog.Int64("bytes_recovered", read), since(m.world, began))
	return nil
}

// findings are what was found in the log directories.
type findings struct {
	replicas map[wire.TopicPartition]place
	futures  map[wire.TopicPartition][]place // of replicas that were being moved, in the order of the log directories
	aside    map[wire.TopicPartition][]place // that wait for their removal
}

// place is where a partition's directory was found.
type place struct {
	dir    *logDir
	name   string    // of a future replica's directory
	id     wire.UUID // of its partition.metadata; zero if it has none
	rests  *log.Resting
	others []place // found in further log directories
	copied bool    // it has just been given its name, at the end of a move

	changed bool // since the last stop, which has left it otherwise
}

// survey lists the partition directories of d.
func (m *Manager) survey(d *logDir, img *image.Image, found findings) error {
	if d.failed() != nil {
		return nil
	}
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("list %s: %w", d.path, err)
	}
	seen := make([]surveyed, len(names))
	m.parallel(len(names), func(i int) { seen[i] = d.look(names[i]) })
	for i, name := range names {
		tp, kind, ok := parseDirName(name)
		if !ok || !seen[i].dir {
			continue
		}
		switch kind {
		case "delete":
			found.aside[tp] = append(found.aside[tp], place{dir: d, name: name})
			m.house.removeAt(d, path.Join(d.path, name), nil, m.o.Now().Add(time.Minute))
			continue
		case "future":
			if err := m.surveyFuture(d, img, found, name, tp); err != nil {
				return err
			}
			continue
		case "stray":
			m.o.Logger.Warn("directory is left alone: it was set aside", "dir", d.path, "name", name)
			continue
		}
		if err := m.surveyOne(d, img, found, name, tp, seen[i]); err != nil {
			return err
		}
	}
	return nil
}

// surveyed is what a name in a log directory stands for.
type surveyed struct {
	dir bool
	id  wire.UUID // of its partition.metadata; zero if that is missing or says nothing
	// rests is how the last stop has left the log, which need not be opened; id is what it says then.
	rests   *log.Resting
	changed bool // since the last stop, which has left it otherwise
}

// look opens what a directory without a suffix has to say about itself.
func (d *logDir) look(name string) surveyed {
	tp, kind, ok := parseDirName(name)
	if !ok {
		return surveyed{}
	}
	if kind == "" {
		r, changed := d.rests(tp)
		if r != nil {
			return surveyed{dir: true, id: r.TopicID, rests: r}
		}
		if id, ok := d.topicIDOf(name); ok {
			return surveyed{dir: true, id: id, changed: changed}
		}
	}
	info, err := d.fs.Stat(path.Join(d.path, name))
	return surveyed{dir: err == nil && info.Dir}
}

func (m *Manager) surveyOne(d *logDir, img *image.Image, found findings, name string, tp wire.TopicPartition, s surveyed) error {
	id := s.id
	if !id.IsZero() && img.WasRemoved(id) {
		return m.finishDelete(d, name, tp, id)
	}
	part, ok := img.Partition(tp.Topic, tp.Partition)
	if !ok || !part.HasReplica(m.o.NodeID) {
		m.o.Logger.Warn("partition directory is unknown to the metadata and left alone", "dir", d.path, "name", name, "topic_id", id)
		d.leaveAlone(tp)
		return nil
	}
	at, twice := found.replicas[tp]
	here := place{dir: d, id: id, rests: s.rests, changed: s.changed}
	if twice {
		at.others = append(at.others, here)
	} else {
		at = here
	}
	found.replicas[tp] = at
	return nil
}

// finishDelete sets aside the directory of a topic that the metadata knows to be deleted.
func (m *Manager) finishDelete(d *logDir, name string, tp wire.TopicPartition, id wire.UUID) error {
	to, err := d.condemn(name, tp, id)
	if err != nil {
		return fmt.Errorf("set aside %s: %w", name, err)
	}
	m.o.Logger.Info("directory of a deleted topic set aside", "dir", d.path, "name", name, "topic_id", id)
	m.house.removeAt(d, to, nil, m.o.Now().Add(time.Minute))
	return nil
}

// evict is called when the directory of a partition of topic id exists although it should not.
func (m *Manager) evict(d *logDir, tp wire.TopicPartition, id wire.UUID, img *image.Image) error {
	has, ok := d.topicIDOf(tp.String())
	if ok && has != id && img.WasRemoved(has) {
		return m.finishDelete(d, tp.String(), tp, has)
	}
	m.o.Logger.Error("partition is refused: its directory exists already and belongs to no deleted topic; it is left alone",
		"dir", d.path, "name", tp.String(), "topic_id", has, "want", id)
	return fmt.Errorf("%s in %s: %w", tp, d.path, kerr.InconsistentTopicID)
}

// opening is one partition on its way into service.
type opening struct {
	p        *Partition
	meta     *image.Partition
	exists   bool
	verified bool // its partition.metadata names the topic
	deferred bool // it is made durable together with others
	rests    *log.Resting
	changed  bool // since the last stop, which has left it otherwise
	plog     *log.Log
	recovery log.Recovery
	copied   bool  // the directory still has the mark of a move
	future   place // where the replica was being moved to; no dir: it was not
	to       *home // its home there, once it is open
}

func (m *Manager) plan(img *image.Image, t *image.Topic, meta *image.Partition, found findings) *opening {
	tp := wire.TopicPartition{Topic: t.Name, Partition: meta.ID}
	at, ok := found.replicas[tp]
	futures := found.take(tp)
	if !ok && len(futures) > 0 {
		if at, ok = m.promote(tp, t.ID, meta.Directory(m.o.NodeID), futures, found.aside[tp]); !ok {
			return m.withheld(img, t, meta, futures[0].dir)
		}
		futures = nil
	}
	if !ok {
		dir, err := m.chooseDir(meta.Directory(m.o.NodeID))
		if err != nil {
			m.o.Logger.Error("partition cannot be served", "topic", tp.Topic, "partition", tp.Partition, "err", err)
			return nil
		}
		if want := meta.Directory(m.o.NodeID); m.offline(want) {
			// Its data lies in a directory that did not open: an empty log in its place would lose it.
			p := m.newPartition(img, t, meta.ID, dir)
			p.refuse(fmt.Errorf("%w: %s", ErrOffline, want))
			return &opening{p: p, meta: meta}
		}
		return &opening{p: m.newPartition(img, t, meta.ID, dir), meta: meta}
	}
	at = m.withdrawCopy(tp, t.ID, at)
	o := &opening{p: m.newPartition(img, t, meta.ID, at.dir), meta: meta, exists: true, verified: at.id == t.ID, rests: at.rests, changed: at.changed}
	switch {
	case len(at.others) > 0:
		m.o.Logger.Error("partition is refused: two log directories hold it", "topic", tp.Topic, "partition", tp.Partition)
		o.p.refuse(fmt.Errorf("%w: %s is in two log directories", ErrOffline, tp))
		for _, d := range m.dirs {
			d.unopened.Store(true)
		}
		for _, p := range append(at.others, at) {
			p.dir.leaveAlone(tp)
		}
	case !at.id.IsZero() && at.id != t.ID:
		if err := m.evict(at.dir, tp, t.ID, img); err != nil {
			o.p.refuse(err)
			at.dir.unopened.Store(true)
			at.dir.leaveAlone(tp)
		}
	default:
		o.copied = at.copied
		o.future = m.chooseFuture(tp, t.ID, at.dir, meta.Directory(m.o.NodeID), futures)
		return o
	}
	o.exists = false
	return o
}

// offline reports whether data that was not found may lie in a directory that failed: in that of this id, or, where no
// directory is known by it, in any (Kafka: LogManager.getOrCreateLog).
func (m *Manager) offline(id wire.UUID) bool {
	failed := false
	for _, d := range m.dirs {
		if d.id == id && id != (wire.UUID{}) {
			return d.failed() != nil
		}
		failed = failed || d.failed() != nil
	}
	return failed
}

// recoverAll opens the logs of the planned partitions. Those of a directory that was not stopped cleanly are made durable
// together where they are many.
func (m *Manager) recoverAll(ctx context.Context, work []*opening, began time.Time) error {
	volumes := m.volumesFor(work)
	progress := recoveryProgress{m: m, total: len(work), told: began}
	m.parallel(len(work), func(i int) {
		m.recover(ctx, work[i], volumes[work[i].p.dir()])
		progress.add(work[i].recovery.BytesRead)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for d, v := range volumes {
		var logs []*log.Log
		for _, o := range work {
			if o.p.dir() == d && o.plog != nil && o.deferred {
				logs = append(logs, o.plog)
			}
		}
		if err := m.syncTogether(d, v, logs); err != nil {
			d.fail(err)
		}
	}
	return nil
}

// volumesFor gives the file systems of the directories whose logs are made durable together.
func (m *Manager) volumesFor(work []*opening) map[*logDir]vfs.Volume {
	logs := map[*logDir]int{}
	for _, o := range work {
		if o.exists && !o.p.dir().clean {
			logs[o.p.dir()]++
		}
	}
	volumes := map[*logDir]vfs.Volume{}
	for d, n := range logs {
		if v := m.together(d, n); v != nil {
			volumes[d] = v
		}
	}
	return volumes
}

// recover opens the log of one partition.
func (m *Manager) recover(ctx context.Context, o *opening, v vfs.Volume) {
	p := o.p
	if !o.exists || ctx.Err() != nil {
		return
	}
	if v != nil {
		on, err := v.Holds(p.pathIn(p.dir()))
		o.deferred = err == nil && on
	}
	var plog *log.Log
	var rec log.Recovery
	var err error
	if o.rests != nil {
		plog = log.Rest(p.dir().logOptions(p), o.rests)
	} else {
		plog, rec, err = p.dir().openLog(ctx, o)
	}
	o.recovery = rec
	if err != nil {
		m.o.Logger.Error("partition is refused: its log cannot be opened", "topic", p.TP.Topic, "partition", p.TP.Partition, "dir", p.dir().path, "err", err)
		p.refuse(err)
		p.dir().unopened.Store(true)
		p.dir().leaveAlone(p.TP)
		_ = p.storageFailed(err) // logged; it matters only to the directory
		return
	}
	if rec.BytesTruncated > 0 || rec.SegmentsRemoved > 0 {
		m.o.Logger.Warn("log was cut at its last whole batch", "topic", p.TP.Topic, "partition", p.TP.Partition,
			"bytes", rec.BytesTruncated, "segments", rec.SegmentsRemoved, "end_offset", plog.EndOffset())
	}
	if o, ok := p.dir().cleaned[p.TP]; ok && o <= plog.EndOffset() {
		p.cleaned.Store(int64(o))
	}
	o.plog = plog
	if o.copied {
		p.at.Load().unmark()
	}
	if o.future.dir != nil {
		o.to = m.openFuture(ctx, o)
	}
}

// progressEvery is the time between two log lines of a recovery that takes long.
const progressEvery = 5 * time.Second

// recoveryProgress tells how far a recovery is. Safe for concurrent use.
type recoveryProgress struct {
	m     *Manager
	total int

	mu    sync.Mutex
	done  int
	bytes int64
	told  time.Time
}

// add notes that one more partition is open, for which so many bytes of segments were read again.
func (r *recoveryProgress) add(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	r.bytes += bytes
	if now := r.m.o.Now(); now.Sub(r.told) >= progressEvery {
		r.told = now
		r.m.o.Logger.Info("recovering partitions", "done", r.done, "of", r.total, "bytes_recovered", r.bytes)
	}
}
