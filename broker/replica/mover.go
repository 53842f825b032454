package replica

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// MoveConfig is what moves between log directories run with.
type MoveConfig struct {
	Threads        int   // num.replica.alter.log.dirs.threads; 0: one for each log directory
	BytesPerSecond int64 // replica.alter.log.dirs.io.max.bytes.per.second, of all moves together; 0: none, < 0: no bound
}

const (
	maxPreferred   = 10_000                 // directories remembered for replicas that are not here yet
	moveBackoffMin = 100 * time.Millisecond // after a step that failed, doubling
	moveBackoffMax = 10 * time.Second
)

// mover brings replicas from one log directory into another (KIP-113; Kafka: ReplicaAlterLogDirsManager): each move takes
// a step, a bounded piece of copying, when its turn comes. It has as many goroutines as there are moves to step on, at
// most the configured number, and none without moves; close joins them.
type mover struct {
	m    *Manager
	pace pace
	ctx  context.Context //nolint:containedctx // the life of the goroutines, ended by close
	end  context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex // covers what follows and what of a move says so; held for moments
	config  MoveConfig
	moves   map[*Partition]*move // at most one of each replica
	ready   []*move
	workers int
	closed  bool
	prefer  map[wire.TopicPartition]*logDir // asked for before the replica was here
	doomed  map[wire.UUID]int               // copies of partitions of deleted topics that are to go
}

func newMover(m *Manager) *mover {
	v := &mover{m: m, moves: map[*Partition]*move{}, prefer: map[wire.TopicPartition]*logDir{}, doomed: map[wire.UUID]int{}}
	v.config = MoveConfig{BytesPerSecond: -1}
	v.ctx, v.end = context.WithCancel(context.Background())
	return v
}

// configure puts a configuration into force, for moves under way, too.
func (v *mover) configure(cfg MoveConfig) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.config = cfg
	switch {
	case cfg.BytesPerSecond < 0:
		v.pace.set(0) // no bound
	case cfg.BytesPerSecond == 0:
		v.pace.set(math.SmallestNonzeroFloat64)
	default:
		v.pace.set(float64(cfg.BytesPerSecond))
	}
	v.hireLocked()
}

// piece is how much is copied in one step, at most: a quarter of what may be copied in a second.
func (v *mover) piece() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	if rate := v.config.BytesPerSecond; rate >= 0 {
		return int(max(1, min(rate/4, movePiece)))
	}
	return movePiece
}

// close ends the steps that run and joins the goroutines. What was not finished goes on with the next start.
func (v *mover) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.end()
	v.wg.Wait()
}

// MoveReplica has the replica of a partition brought into the log directory at path, which must be spelt as the
// configuration spells it, cleaned. It returns at once. The directory in which the replica lies ends a move that is under
// way, another directory replaces it. Where the replica is not here yet, the directory is remembered for when it comes.
//
// Errors: kerr.InvalidTopicException for a name that is too long for the directory of a move, kerr.LogDirNotFound,
// ErrOffline, kerr.ReplicaNotAvailable, kerr.UnknownTopicOrPartition.
func (m *Manager) MoveReplica(topic string, id wire.PartitionID, path string) error {
	tp := wire.TopicPartition{Topic: topic, Partition: id}
	if len(futureDirName(tp, wire.UUID{})) > maxNameBytes {
		return kerr.InvalidTopicException
	}
	d := m.dirAt(path)
	if d == nil {
		return kerr.LogDirNotFound
	}
	if err := d.failed(); err != nil {
		return err
	}
	p, here := m.ByName(topic, id)
	if here {
		if err := p.Err(); err != nil {
			return err
		}
		m.mover.bring(p, d)
		return nil
	}
	m.mover.remember(tp, d)
	if img := m.img.Load(); img != nil {
		if _, known := img.Partition(topic, id); known {
			return kerr.ReplicaNotAvailable
		}
	}
	return kerr.UnknownTopicOrPartition
}

// dirAt finds a log directory by its path; nil: there is none.
func (m *Manager) dirAt(path string) *logDir {
	for _, d := range m.dirs {
		if cleanPath(d.path) == path {
			return d
		}
	}
	return nil
}

func (v *mover) remember(tp wire.TopicPartition, d *logDir) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.prefer[tp]; ok || len(v.prefer) < maxPreferred {
		v.prefer[tp] = d
	}
}

// preferred takes the directory that was asked for before the replica came; nil: none was, or it does not work.
func (v *mover) preferred(tp wire.TopicPartition) *logDir {
	v.mu.Lock()
	defer v.mu.Unlock()
	d := v.prefer[tp]
	delete(v.prefer, tp)
	if d == nil || d.failed() != nil {
		return nil
	}
	return d
}

// bring begins, replaces or ends the move of p so that it comes to lie in d.
func (v *mover) bring(p *Partition, d *logDir) {
	for {
		v.mu.Lock()
		old, from := v.moves[p], p.at.Load()
		switch {
		case v.closed || old != nil && old.to.dir == d:
			v.mu.Unlock()
			return
		case old != nil:
			delete(v.moves, p)
			v.mu.Unlock()
			v.abandon(old)
			continue // it may have ended well meanwhile
		case from.dir == d:
			v.mu.Unlock()
			return
		}
		v.beginLocked(p, &home{p: p, dir: d})
		v.mu.Unlock()
		v.m.world.logger.Info("moving a replica to another log directory", slog.String("topic", p.TP.Topic),
			slog.Int("partition", int(p.TP.Partition)), slog.String("from", from.dir.path), slog.String("to", d.path))
		return
	}
}

// resume goes on with a move of which to is the future home.
func (v *mover) resume(p *Partition, to *home) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.beginLocked(p, to)
	}
}

func (v *mover) beginLocked(p *Partition, to *home) {
	from := p.at.Load()
	said := v.saidOf(p)
	mv := &move{v: v, p: p, to: to, state: moveState{from: from.dir.id, to: to.dir.id, said: said,
		untold: v.m.o.AssignDirs == nil || to.dir.id.IsZero(), announced: said == to.dir.id}}
	mv.ctx, mv.cancel = context.WithCancel(v.ctx)
	v.moves[p] = mv
	to.enter()
	v.enqueueLocked(mv)
}

// saidOf is where the metadata says that p lies.
func (v *mover) saidOf(p *Partition) wire.UUID {
	if img := v.m.img.Load(); img != nil {
		if meta, ok := img.Partition(p.TP.Topic, p.TP.Partition); ok {
			return meta.Directory(v.m.o.NodeID)
		}
	}
	return image.DirectoryUnassigned
}

// said takes the metadata's word of where p lies.
func (v *mover) said(p *Partition, dir wire.UUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if mv := v.moves[p]; mv != nil {
		mv.state.said = dir
		v.enqueueLocked(mv)
	}
}

// declared is the directory that the metadata is to name for p.
func (v *mover) declared(p *Partition) wire.UUID {
	v.mu.Lock()
	defer v.mu.Unlock()
	if mv := v.moves[p]; mv != nil {
		return mv.state.declared()
	}
	return p.dir().id
}

// moving reports whether p is on its way to another directory.
func (v *mover) moving(p *Partition) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moves[p] != nil
}

// count is the number of moves.
func (v *mover) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.moves)
}

// forget ends the move of a partition that is deleted here and was stopped. The copy goes when its disk lets it: the
// caller, who brings the metadata in, does not wait.
func (v *mover) forget(p *Partition) {
	v.mu.Lock()
	defer v.mu.Unlock()
	mv := v.moves[p]
	if mv == nil {
		return
	}
	delete(v.moves, p)
	mv.doomed.Store(true)
	mv.cancel()
	v.doomed[p.TopicID]++
	v.enqueueLocked(mv)
}

// buried says that nothing is left of the copy of a deleted partition, or as much as will stay.
func (v *mover) buried(mv *move) {
	v.mu.Lock()
	defer v.mu.Unlock()
	mv.doomed.Store(false)
	if id := mv.p.TopicID; v.doomed[id] > 1 {
		v.doomed[id]--
	} else {
		delete(v.doomed, id)
	}
}

// holds reports whether copies of partitions of a deleted topic are left.
func (v *mover) holds(topic wire.UUID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.doomed[topic] > 0
}

// dirFailed ends the moves to and from a directory that has failed. What was copied stays where it is: after the next
// start it is gone on with, if the directory works again.
func (v *mover) dirFailed(d *logDir) {
	var ended []*move
	v.mu.Lock()
	for p, mv := range v.moves {
		if mv.to.dir == d || p.dir() == d {
			delete(v.moves, p)
			ended = append(ended, mv)
		}
	}
	v.mu.Unlock()
	for _, mv := range ended {
		mv.cancel()
		v.m.world.logger.Error("replica moves no further: a log directory has failed", slog.String("topic", mv.p.TP.Topic),
			slog.Int("partition", int(mv.p.TP.Partition)), slog.String("from", mv.p.dir().path), slog.String("to", mv.to.dir.path))
		v.m.assigner.tell(mv.p)
	}
}

// abandon ends a move that was taken out of the map, and gives up what was copied; unless it has just succeeded.
func (v *mover) abandon(mv *move) {
	mv.cancel()
	mv.stepping.Lock()
	defer mv.stepping.Unlock()
	if mv.p.at.Load() == mv.to {
		return
	}
	mv.to.leave()
	mv.discard()
	v.m.assigner.tell(mv.p)
}

// enqueueLocked lets mv take a step soon.
func (v *mover) enqueueLocked(mv *move) {
	switch {
	case v.closed || mv.queued:
		return
	case mv.running:
		mv.again = true
		return
	}
	mv.queued = true
	v.ready = append(v.ready, mv)
	v.hireLocked()
}

// hireLocked starts the goroutines that the queue wants.
func (v *mover) hireLocked() {
	for v.workers < min(v.threadsLocked(), len(v.ready)) && !v.closed {
		v.workers++
		v.wg.Go(v.work)
	}
}

func (v *mover) threadsLocked() int {
	if v.config.Threads > 0 {
		return v.config.Threads
	}
	return len(v.m.dirs)
}

func (v *mover) work() {
	var buf []byte
	for {
		v.mu.Lock()
		if v.closed || len(v.ready) == 0 || v.workers > v.threadsLocked() {
			v.workers--
			v.mu.Unlock()
			return
		}
		mv := v.ready[0]
		v.ready[0] = nil
		v.ready = v.ready[1:]
		mv.queued, mv.running, mv.again = false, true, false
		v.mu.Unlock()
		mv.buf = buf
		v.turn(mv)
		buf, mv.buf = mv.buf, nil
	}
}

// turn lets mv take one step and decides when the next one comes.
func (v *mover) turn(mv *move) {
	mv.stepping.Lock()
	more, err := false, error(nil)
	switch {
	case v.current(mv):
		more, err = mv.step()
	case mv.doomed.Load():
		mv.to.leave()
		mv.discard()
		v.buried(mv)
	}
	mv.stepping.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	mv.running = false
	switch {
	case v.moves[mv.p] != mv:
		if mv.again { // it was forgotten during its step
			v.enqueueLocked(mv)
		}
	case err != nil:
		mv.backoff = min(max(2*mv.backoff, moveBackoffMin), moveBackoffMax)
		time.AfterFunc(mv.backoff, func() { v.wake(mv) })
	default:
		mv.backoff = 0
		if more || mv.again {
			v.enqueueLocked(mv)
		}
	}
}

func (v *mover) wake(mv *move) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moves[mv.p] == mv {
		v.enqueueLocked(mv)
	}
}

func (v *mover) current(mv *move) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.moves[mv.p] == mv
}

// next asks the state what to do.
func (v *mover) next(mv *move, caughtUp bool) moveStep {
	v.mu.Lock()
	defer v.mu.Unlock()
	return mv.state.next(caughtUp)
}

// done takes a move that has ended well out of the map.
func (v *mover) done(mv *move) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.moves[mv.p] == mv {
		delete(v.moves, mv.p)
	}
}
