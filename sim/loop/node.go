package loop

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// Timers of the runs: short, so that much happens.
const (
	sessionTimeout = 1500 * time.Millisecond // broker.session.timeout.ms
	heartbeatEvery = 200 * time.Millisecond
	lagTime        = 1500 * time.Millisecond // replica.lag.time.max.ms
	checkpointTime = 300 * time.Millisecond
	rpcTimeout     = time.Second
)

// checkpoint is what a node has written down of a partition.
type checkpoint struct{ recovery, start, hw wire.Offset }

// node is one machine: a broker, and a controller if it is one of the first three.
type node struct {
	actor
	c *cluster

	// On the disk.
	disk        *memfs.FS
	checkpoints []checkpoint // by partition
	clean       wire.BrokerEpoch

	// Of this life.
	img      *image.Image
	applied  int // entries of the metadata log
	deaf     time.Duration
	epoch    wire.BrokerEpoch // NoBrokerEpoch before the registration
	serving  bool             // the image holds the registration, and the partitions are open
	stopping bool
	ctrl     *ctrl
	parts    []*part // by partition; nil where it has no replica
	sources  []source
	parked   []*parkedFetch
	kicked   bool
	asking   bool // an AlterPartition is under way
	conns    map[int]*conn
	hint     int // who may be the controller

	lateAnswers time.Duration // how much later than they come answers of transaction coordinators are taken
	waiting     int           // such answers

	markers     *marker.Fence
	lostMarkers [maxNodes + 1]int64 // by node: how many requests with markers it has not heard of again
}

func newNode(c *cluster, id int) *node {
	n := &node{actor: actor{id: id}, c: c, disk: memfs.New(c.time), clean: wire.NoBrokerEpoch, epoch: wire.NoBrokerEpoch}
	n.checkpoints = make([]checkpoint, c.opts.partitions())
	if err := errors.Join(n.disk.MkdirAll("d"), n.disk.SyncDir("/")); err != nil {
		c.violated("make the log directory: %v", err)
	}
	return n
}

// later lets fn happen at this node in its present life.
func (n *node) later(d time.Duration, fn func()) {
	life := n.life
	n.c.after(d, func() { n.do(life, fn) })
}

// boot starts the process.
func (n *node) boot() {
	n.up, n.paused, n.late = true, false, nil
	n.life++
	n.c.note("boot", int64(n.id), int64(n.life), int64(n.clean), 0)
	n.img, n.applied, n.epoch, n.serving, n.stopping = image.Empty(clusterID), 0, wire.NoBrokerEpoch, false, false
	n.parts, n.sources = make([]*part, n.c.opts.partitions()), make([]source, maxNodes+1)
	n.parked, n.kicked, n.asking, n.waiting = nil, false, false, 0
	n.markers, n.lostMarkers = &marker.Fence{}, [maxNodes + 1]int64{}
	n.conns, n.hint = map[int]*conn{}, 1+n.c.rng.IntN(len(n.c.nodes))
	n.ctrl = newCtrl(n)
	n.tickFollow()
	n.register()
	n.tickHeartbeat()
	n.tickISR()
	n.tickCheckpoint()
}

// dies ends the process; what the disk then holds says fate.
func (n *node) dies(fate memfs.Fate) {
	n.c.note("dies", int64(n.id), int64(n.life), int64(fate), 0)
	n.up = false
	n.disk = n.disk.Crash(fate, n.c.rng.Uint64())
}

// stop is a clean one: the controller moves the leaderships first.
func (n *node) stop() {
	if n.stopping {
		return
	}
	n.stopping = true
	n.c.note("stop", int64(n.id), 0, 0, 0)
	n.later(3*time.Second, n.halt) // at the latest
}

func (n *node) halt() {
	for i, p := range n.parts {
		if p == nil {
			continue
		}
		if err := p.plog.Close(); err != nil {
			n.c.violated("node %d: close %d: %v", n.id, i, err)
		}
		n.write(p)
	}
	n.c.note("halt", int64(n.id), int64(n.epoch), 0, 0)
	n.clean = n.epoch
	n.up = false
	n.disk = n.disk.Crash(memfs.Keep, n.c.rng.Uint64())
}

// pause is SIGSTOP, resume SIGCONT.
func (n *node) pause() { n.paused = true; n.c.note("pause", int64(n.id), 0, 0, 0) }

func (n *node) resume() {
	n.paused = false
	n.c.note("resume", int64(n.id), 0, 0, 0)
	late := n.late
	n.late = nil
	for _, fn := range late {
		fn()
	}
}

func (n *node) conn(to int) *conn {
	c := n.conns[to]
	t := n.c.node(to)
	if c == nil || c.dead || c.toLife != t.life {
		c = n.c.net.dial(&n.actor, &t.actor)
		n.conns[to] = c
	}
	return c
}

func (n *node) tickFollow() {
	n.follow()
	n.later(100*time.Millisecond, n.tickFollow)
}

// follow applies what the metadata's leader has committed, if it can be reached.
func (n *node) follow() {
	m := n.c.meta
	if m.leader == 0 || n.c.now < n.deaf && m.leader != n.id || m.leader != n.id && n.c.net.isCut(m.leader, n.id) {
		return
	}
	for n.applied < len(m.entries) {
		offset := wire.Offset(n.applied + 1)
		next, delta, dropped, err := raftctl.ApplyEntry(n.img, offset, m.entries[n.applied])
		if err != nil {
			n.c.violated("node %d cannot apply metadata entry %d: %v", n.id, offset, err)
			return
		}
		n.img = next
		n.applied++
		if !dropped && n.serving {
			n.publish(delta)
		}
	}
	if !n.serving && n.epoch != wire.NoBrokerEpoch {
		n.serve()
	}
}

// serve opens the partitions once the image holds this life's registration: before, it may still say that this node leads
// what it led in its last life.
func (n *node) serve() {
	b, ok := n.img.Broker(wire.BrokerID(n.id))
	if !ok || b.Epoch != n.epoch {
		return
	}
	n.serving = true
	for t := range n.img.Topics() {
		for _, p := range t.Partitions {
			n.publishPartition(t, p)
		}
	}
}

func (n *node) publish(d *image.Delta) {
	for _, t := range d.Topics {
		for _, p := range t.Partitions {
			if p.New != nil {
				n.publishPartition(t.New, p.New)
			}
		}
	}
}

func (n *node) publishPartition(t *image.Topic, p *image.Partition) {
	if !p.HasReplica(wire.BrokerID(n.id)) {
		return
	}
	i := indexOf(t.Name, p.ID)
	if n.parts[i] == nil {
		n.open(i, t)
	}
	if n.c.err == nil {
		n.parts[i].apply(p)
	}
}

func indexOf(topic string, p wire.PartitionID) int {
	switch topic {
	case dataTopic:
		return int(p)
	case image.TxnStateTopic:
		return txnPartition
	}
	return offsetsPartition
}

func nameOf(i int) wire.TopicPartition {
	switch i {
	case offsetsPartition:
		return wire.TopicPartition{Topic: image.OffsetsTopic}
	case txnPartition:
		return wire.TopicPartition{Topic: image.TxnStateTopic}
	}
	return wire.TopicPartition{Topic: dataTopic, Partition: wire.PartitionID(i)}
}

// open opens a partition's log as the disk has it.
func (n *node) open(i int, t *image.Topic) {
	at := n.checkpoints[i]
	plog, _, err := log.Open(context.Background(), log.Options{
		FS: n.disk, Dir: fmt.Sprintf("d/%s", nameOf(i)), TP: nameOf(i), TopicID: t.ID, Config: n.c.logConfig,
		RecoveryPoint: at.recovery, LogStartOffset: at.start, Clean: n.clean != wire.NoBrokerEpoch, Wall: n.c.time,
		Logger: n.c.logger, Codecs: n.c.codecs,
	})
	if err != nil {
		n.c.violated("node %d: open partition %d: %v", n.id, i, err)
		return
	}
	n.parts[i] = &part{n: n, i: i, plog: plog, state: replica.NewState(wire.BrokerID(n.id), n.c.opts.FSync, lagTime, n.c.opts.MinISR,
		plog.StartOffset(), plog.EndOffset(), plog.FlushedOffset(), at.hw)}
	n.parts[i].state.JudgeBy(func(id wire.BrokerID, epoch wire.BrokerEpoch) bool {
		b, ok := n.img.Broker(id)
		return ok && b.Active() && b.Epoch == epoch
	})
	plog.Replicated(at.hw) // what was read again ends transactions below it, which need not move for that
	n.parts[i].state.OnAppend(plog.EndOffset(), n.parts[i].unstable(), n.c.time())
	n.c.note("open", int64(n.id), int64(i), int64(plog.StartOffset()), int64(plog.EndOffset()))
}

// write is the checkpoint of a partition.
func (n *node) write(p *part) {
	n.checkpoints[p.i] = checkpoint{recovery: p.plog.RecoveryPoint(), start: p.plog.StartOffset(), hw: p.state.HW()}
}

func (n *node) tickCheckpoint() {
	for _, p := range n.parts {
		if p != nil {
			n.write(p)
		}
	}
	n.later(n.c.between(checkpointTime/2, checkpointTime), n.tickCheckpoint)
}

// ask sends a request to who may be the controller, and tells done the outcome.
func (n *node) ask(decide func(core *raftctl.Core) ([]byte, any, error), done func(o outcome)) {
	to := n.hint
	t := n.c.node(to)
	n.conn(to).call(rpcTimeout, func(reply func(any)) { t.ctrl.request(decide, reply) }, func(r any) {
		o, ok := r.(outcome)
		if !ok {
			o = outcome{err: errUnsettled}
		}
		if errors.Is(o.err, errOther) || errors.Is(o.err, errUnsettled) {
			n.hint = 1 + n.c.rng.IntN(len(n.c.meta.voters()))
		}
		done(o)
	})
}

// incarnation is the id of the present life.
func (n *node) incarnation() wire.UUID {
	return wire.UUID{0: 9, 1: byte(n.id), 15: byte(n.life), 14: byte(n.life >> 8)}
}

func (n *node) register() {
	reg := raftctl.Registration{
		ID: wire.BrokerID(n.id), Incarnation: n.incarnation(),
		LogDirs: []wire.UUID{{0: 8, 1: byte(n.id)}}, PreviousEpoch: n.clean,
		Features: map[string]image.VersionRange{image.FeatureMetadataVersion: {Min: 1, Max: 99},
			image.FeatureELR: {Min: 0, Max: 1}, image.FeatureTransactionVersion: {Min: 0, Max: 2}},
	}
	n.ask(func(core *raftctl.Core) ([]byte, any, error) {
		data, epoch, err := core.RegisterBroker(reg)
		return data, epoch, err
	}, func(o outcome) {
		if o.err != nil {
			n.later(n.c.between(20*time.Millisecond, 100*time.Millisecond), n.register)
			return
		}
		n.epoch = o.value.(wire.BrokerEpoch)
		n.c.note("registered", int64(n.id), int64(n.epoch), 0, 0)
		n.follow()
	})
}

func (n *node) tickHeartbeat() {
	n.later(heartbeatEvery, n.tickHeartbeat)
	if !n.serving {
		return
	}
	hb := raftctl.Heartbeat{ID: wire.BrokerID(n.id), Epoch: n.epoch, Offset: wire.Offset(n.applied), WantShutDown: n.stopping}
	n.ask(func(core *raftctl.Core) ([]byte, any, error) {
		return heartbeat(core, n.c, hb)
	}, func(o outcome) {
		if o.err == nil && o.value.(raftctl.HeartbeatReply).ShouldShutDown && n.stopping {
			n.clean = n.epoch
			n.halt()
		}
	})
}

func heartbeat(core *raftctl.Core, c *cluster, hb raftctl.Heartbeat) ([]byte, any, error) {
	data, reply, err := core.Heartbeat(hb, c.meta.committed().Offset(), c.time())
	return data, reply, err
}
