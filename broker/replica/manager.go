package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Intervals of the housekeeping; zero values are Kafka's defaults.
type Intervals struct {
	HWCheckpoint       time.Duration // replica.high.watermark.checkpoint.interval.ms, 5 s
	RecoveryPoint      time.Duration // log.flush.offset.checkpoint.interval.ms, 60 s
	LogStart           time.Duration // log.flush.start.offset.checkpoint.interval.ms, 60 s
	Retention          time.Duration // log.retention.check.interval.ms, 5 min
	ProducerExpiration time.Duration // producer.id.expiration.check.interval.ms, 10 min
}

func (i Intervals) withDefaults() Intervals {
	set := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	set(&i.HWCheckpoint, 5*time.Second)
	set(&i.RecoveryPoint, time.Minute)
	set(&i.LogStart, time.Minute)
	set(&i.Retention, 5*time.Minute)
	set(&i.ProducerExpiration, 10*time.Minute)
	return i
}

// Options are what a Manager needs of the broker.
type Options struct {
	FS     vfs.FS
	Dirs   []Dir // at least one
	NodeID wire.BrokerID
	// PreviousBrokerEpoch is the broker epoch of this node's last registration before this start, as the metadata has
	// it; NoBrokerEpoch if there is none. A clean-shutdown file of any other epoch is not believed.
	PreviousBrokerEpoch wire.BrokerEpoch
	// BrokerEpoch gives this incarnation's broker epoch for the clean-shutdown file; asked by Close.
	BrokerEpoch func() wire.BrokerEpoch

	Now  func() time.Time // monotonic; nil: time.Now
	Wall func() time.Time // wall clock; nil: time.Now

	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
	Codecs     *compress.Codecs

	// TopicConfig is a topic's effective configuration under an image.
	TopicConfig func(img *image.Image, topic string) *log.Config
	// FSync is a topic's kaja.fsync under an image; nil: auto.
	FSync func(img *image.Image, topic string) FSync

	// Cleaner is what compaction runs with under an image; nil: nothing is compacted.
	Cleaner func(img *image.Image) CleanerConfig
	// Moves is what moves between log directories run with under an image; nil: nothing bounds them.
	Moves func(img *image.Image) MoveConfig
	// Scrub bounds the scrubber; the zero value: nothing is scrubbed.
	Scrub ScrubConfig

	ReplicaLagTime  time.Duration // replica.lag.time.max.ms; 0: 30 s
	RecoveryThreads int           // num.recovery.threads.per.data.dir; 0: 2
	// SyncTogether is from how many logs of a directory on that were recovered, or have something to flush at the stop, their
	// file system is synced as a whole instead of each log; 0: DefaultSyncTogether, < 0: never.
	SyncTogether int
	Intervals    Intervals
	// ClockJumpHold is how long a jump of the wall clock must stand before anything is deleted by it; 0: DefaultJumpHold.
	ClockJumpHold time.Duration
	// SpaceReserve is how many bytes of a log directory's file system records of clients' topics leave free, for the
	// controller's log, committed offsets and checkpoints. 0: none; < 0: a 32nd of the file system, at most 64 MiB.
	SpaceReserve       int64
	RetentionInitDelay time.Duration // before the first retention run; 0: 30 s, as log.initial.task.delay.ms

	// Elected and Resigned report this broker's leadership of partitions of internal topics, in order, from the
	// goroutine that calls Open or Apply; a new epoch of the same leader is Resigned, then Elected. They must not block.
	Elected  func(p *Partition, epoch wire.LeaderEpoch)
	Resigned func(p *Partition, epoch wire.LeaderEpoch)
	// AskLeader sends a Fetch or a ListOffsets to another broker on a connection that it can prove to be this node's, and
	// gives the answer, whose memory is the caller's until its next call for that broker. It is called from one goroutine for
	// each broker. nil: nothing is replicated.
	AskLeader func(ctx context.Context, leader wire.BrokerID, req kmsg.Request) (kmsg.Response, error)
	// Unsure reports whether this broker may have been replaced as a leader without its knowing. It must not block; nil: never.
	Unsure func() bool
	// Fetch bounds the fetches of followers.
	Fetch FetchConfig
	// AlterPartitions asks the controller for changes of ISRs; the results are parallel to changes. An error means that
	// nobody knows whether anything was changed. It is called once at a time. nil: no ISR ever changes from here.
	AlterPartitions func(ctx context.Context, changes []ISRChange) ([]ISRResult, error)

	// AssignDirs tells the controller in which log directories replicas lie, where the metadata says otherwise. An error
	// means that it has to be told again. It is called once at a time. nil: nobody is told.
	AssignDirs func(ctx context.Context, assignments []DirAssignment) error
	// DirFailed reports a log directory that went offline; ResignOffline is to be called then. It must not block.
	DirFailed func(d Dir, err error)
	// Damaged reports a partition that went offline because its stored records have changed; ResignOffline is to be called
	// then. It must not block.
	Damaged func(p *Partition)
}

type partitionID struct {
	topic     wire.UUID
	partition wire.PartitionID
}

// Manager is the map of this broker's partitions with their lifecycle. Open and Apply are called from one goroutine;
// everything else is safe for concurrent use.
type Manager struct {
	o     Options
	world *world
	dirs  []*logDir
	house *housekeeper
	clean *cleaner
	scrub *scrubber

	isr      *isrKeeper
	fetchers *fetchers
	arrivals *arrivals
	assigner *assigner
	mover    *mover
	img      atomic.Pointer[image.Image] // the newest that Open or Apply was given
	last     topicSettings               // of the goroutine that calls Open or Apply

	mu     sync.RWMutex
	byID   map[partitionID]*Partition
	byName map[wire.TopicPartition]*Partition
	stays  map[wire.UUID]bool // deleted topics of which a directory could not be set aside
}

// DefaultSyncTogether is where one sync of a file system, which also waits for what others wrote to it, is sure to cost less
// than the four or more syncs of each log.
const DefaultSyncTogether = 64

// NewManager makes a manager that holds nothing and touches nothing yet.
func NewManager(o Options) *Manager {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wall == nil {
		o.Wall = time.Now
	}
	if o.FSync == nil {
		o.FSync = func(*image.Image, string) FSync { return FSyncAuto }
	}
	if o.ReplicaLagTime <= 0 {
		o.ReplicaLagTime = 30 * time.Second
	}
	if o.RecoveryThreads <= 0 {
		o.RecoveryThreads = 2
	}
	if o.SyncTogether == 0 {
		o.SyncTogether = DefaultSyncTogether
	}
	if o.ClockJumpHold <= 0 {
		o.ClockJumpHold = DefaultJumpHold
	}
	if o.RetentionInitDelay <= 0 {
		o.RetentionInitDelay = 30 * time.Second
	}
	o.Intervals = o.Intervals.withDefaults()
	o.Fetch = o.Fetch.withDefaults()
	m := &Manager{o: o, byID: map[partitionID]*Partition{}, byName: map[wire.TopicPartition]*Partition{},
		stays: map[wire.UUID]bool{}}
	if o.Unsure == nil {
		o.Unsure = func() bool { return false }
	}
	m.world = &world{now: o.Now, wall: o.Wall, logger: o.Logger, codecs: o.Codecs, unsure: o.Unsure}
	m.world.aged = &clock{wall: o.Wall, mono: o.Now, hold: o.ClockJumpHold, logger: o.Logger}
	m.world.metrics = newMetrics(o.Registerer, m)
	for _, d := range o.Dirs {
		ld := newLogDir(d, o.FS, m.world, o.SpaceReserve)
		if d.Err != nil {
			ld.fail(d.Err) // before anybody is to be told: the registration does not name it
		}
		ld.onFail = func(ld *logDir, err error) {
			m.mover.dirFailed(ld)
			if o.DirFailed != nil {
				o.DirFailed(Dir{Path: ld.path, ID: ld.id}, err)
			}
		}
		m.dirs = append(m.dirs, ld)
	}
	m.world.damaged = func(p *Partition) {
		if o.Damaged != nil {
			o.Damaged(p)
		}
	}
	m.house = newHousekeeper(m)
	m.clean = newCleaner(m)
	m.scrub = newScrubber(m, o.Scrub, o.Registerer)
	m.isr, m.fetchers, m.arrivals = newISRKeeper(m), newFetchers(m), newArrivals(o.Now)
	m.world.isr, m.assigner, m.mover = m.isr, newAssigner(m), newMover(m)
	m.world.timed = m.house.flushAt
	return m
}

// ByName finds the replica of a partition on this broker by its topic's name.
func (m *Manager) ByName(topic string, p wire.PartitionID) (*Partition, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found, ok := m.byName[wire.TopicPartition{Topic: topic, Partition: p}]
	return found, ok
}

// Partition finds the replica of a partition on this broker by its topic's id.
func (m *Manager) Partition(topic wire.UUID, p wire.PartitionID) (*Partition, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	found, ok := m.byID[partitionID{topic, p}]
	return found, ok
}

// LogDirs describes every log directory, in the order of the configuration.
func (m *Manager) LogDirs() []DirInfo {
	out := make([]DirInfo, len(m.dirs))
	for i, d := range m.dirs {
		out[i] = d.info()
	}
	return out
}

func (m *Manager) all() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	out := make([]*Partition, 0, len(m.byID))
	for _, p := range m.byID {
		out = append(out, p)
	}
	return out
}

func (m *Manager) count(is func(*Partition) bool) int {
	n := 0
	for _, p := range m.all() {
		if is(p) {
			n++
		}
	}
	return n
}

// newPartition makes a partition without a log in dir.
func (m *Manager) newPartition(img *image.Image, t *image.Topic, id wire.PartitionID, dir *logDir) *Partition {
	p := &Partition{TP: wire.TopicPartition{Topic: t.Name, Partition: id}, TopicID: t.ID, world: m.world}
	p.at.Store(&home{p: p, dir: dir})
	s := m.settingsOf(img, t.Name)
	p.config.Store(s.config)
	p.cleaned.Store(int64(wire.NoOffset))
	p.state = NewState(m.o.NodeID, s.fsync, m.o.ReplicaLagTime, s.config.MinInSyncReplicas, 0, 0, 0, 0)
	p.state.JudgeBy(m.world.isr.mayJoin)
	return p
}

// topicSettings is what the partitions of a topic have in common under an image.
type topicSettings struct {
	img    *image.Image
	topic  string
	config *log.Config
	fsync  FSync
}

// settingsOf works out the settings of a topic; those asked for last are kept, since a topic's partitions come together.
func (m *Manager) settingsOf(img *image.Image, topic string) *topicSettings {
	if m.last.img != img || m.last.topic != topic {
		m.last = topicSettings{img, topic, m.o.TopicConfig(img, topic), m.o.FSync(img, topic)}
	}
	return &m.last
}

// publish makes p known.
func (m *Manager) publish(p *Partition) {
	p.at.Load().enter()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byID[partitionID{p.TopicID, p.TP.Partition}] = p
	m.byName[p.TP] = p
}

// withdraw makes p unknown.
func (m *Manager) withdraw(p *Partition) {
	p.at.Load().leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byID, partitionID{p.TopicID, p.TP.Partition})
	if m.byName[p.TP] == p {
		delete(m.byName, p.TP)
	}
}

// chooseDir is the directory of a new replica: the one that the metadata names, else the online one with the fewest
// partitions.
func (m *Manager) chooseDir(want wire.UUID) (*logDir, error) {
	var best *logDir
	fewest := 0
	for _, d := range m.dirs {
		if d.failed() != nil {
			continue
		}
		if d.id == want && want != image.DirectoryUnassigned {
			return d, nil
		}
		d.mu.Lock()
		n := len(d.homes)
		d.mu.Unlock()
		if best == nil || n < fewest {
			best, fewest = d, n
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%w: no log directory is left", ErrOffline)
	}
	return best, nil
}

// Apply takes the next image, whose difference from the last one given to Open or Apply is delta. It returns when the
// image is in force here: requests that come after it see its partitions. A partition that cannot follow is taken out
// of service and logged; Apply itself fails only when ctx ends.
func (m *Manager) Apply(ctx context.Context, delta *image.Delta, img *image.Image) error {
	m.img.Store(img)
	news := newcomers{}
	defer m.expect(news)
	for _, t := range delta.Topics {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, pd := range t.Partitions {
			m.applyPartition(img, t, pd, news)
		}
	}
	m.applyConfigs(delta, img)
	return nil
}

// newcomers are the brokers that have something new to fetch from this one, because of one image.
type newcomers map[wire.BrokerID]struct{}

// expect has them fetch it: once for all partitions.
func (m *Manager) expect(news newcomers) {
	for id := range news {
		if id != m.o.NodeID {
			m.arrivals.expect(id)
		}
	}
}

func (m *Manager) applyPartition(img *image.Image, t image.TopicDelta, pd image.PartitionDelta, news newcomers) {
	p, here := m.Partition(t.ID, pd.ID)
	if t.Removed() || pd.New == nil || !pd.New.HasReplica(m.o.NodeID) {
		if here {
			m.delete(p)
		}
		return
	}
	if !here {
		dir, err := m.mover.preferred(wire.TopicPartition{Topic: t.Name, Partition: pd.ID}), error(nil)
		if dir == nil {
			dir, err = m.chooseDir(pd.New.Directory(m.o.NodeID))
		}
		if err != nil {
			m.world.logger.Error("partition cannot be created", "topic", t.Name, "partition", pd.ID, "err", err)
			return
		}
		p = m.newPartition(img, t.New, pd.ID, dir)
		m.claim(p, img)
		m.publish(p)
	}
	m.applyTo(p, pd.New, news)
}

// claim looks whether the directory of a new partition is taken by another one: of a deleted topic it is condemned, of
// anything else it is left alone and the new partition refused. It looks only for what is known to lie there: to ask the disk is a
// third of what a new partition costs. What was put there since is found when the directory is made.
func (m *Manager) claim(p *Partition, img *image.Image) {
	for _, d := range m.dirs {
		if d.failed() != nil || !d.leftAlone(p.TP) {
			continue
		}
		taken, err := vfs.Exists(d.fs, p.pathIn(d))
		if err == nil && taken {
			err = m.evict(d, p.TP, p.TopicID, img)
		}
		if err != nil {
			p.refuse(err)
		}
	}
}

func (m *Manager) applyTo(p *Partition, now *image.Partition, news newcomers) {
	_, before := p.leading()
	x, err := p.apply(Assignment{Leader: now.Leader, LeaderEpoch: now.LeaderEpoch, PartitionEpoch: now.PartitionEpoch,
		Replicas: now.Replicas, ISR: now.ISR})
	if err != nil {
		m.world.logger.Error("leader epoch cannot be noted", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err)
	}
	m.follow(p, now, x, news)
	if p.usable() == nil { // also in a directory that has failed: the metadata may still name the one it was on its way to
		m.assigner.note(p, now)
		m.mover.said(p, now.Directory(m.o.NodeID))
	}
	if !image.IsInternal(p.TP.Topic) {
		return
	}
	if x.fresh && x.led {
		m.resign(p, before)
	}
	if x.fresh && x.leads && m.o.Elected != nil && p.Err() == nil {
		p.coordinates = true
		m.o.Elected(p, now.LeaderEpoch)
	}
}

// follow has the replica fetch from its leader, or be fetched from.
func (m *Manager) follow(p *Partition, now *image.Partition, x applied, news newcomers) {
	switch {
	case x.leads:
		m.fetchers.forget(p)
		if x.newFollower {
			for _, id := range now.Replicas {
				news[id] = struct{}{}
			}
		}
	case now.Leader == wire.NoBroker || p.Err() != nil:
		m.fetchers.forget(p)
	default:
		m.fetchers.follow(p, now.Leader, now.LeaderEpoch)
	}
}

// resign ends the coordinator of an internal partition, once.
func (m *Manager) resign(p *Partition, epoch wire.LeaderEpoch) {
	if p.coordinates && m.o.Resigned != nil {
		m.o.Resigned(p, epoch)
	}
	p.coordinates = false
}

// ResignOffline ends the coordinators of internal partitions that are offline, as their log directory or they themselves are: they
// cannot write any more. It is called after DirFailed and Damaged, as Open and Apply are, from one goroutine at a time.
func (m *Manager) ResignOffline() {
	for _, p := range m.all() {
		if leads, epoch := p.leading(); leads && p.coordinates && p.Err() != nil {
			m.resign(p, epoch)
		}
	}
}

// OfflineDirs are the ids of the log directories that have failed, for the heartbeat.
func (m *Manager) OfflineDirs() []wire.UUID {
	var ids []wire.UUID
	for _, d := range m.dirs {
		if d.failed() != nil {
			ids = append(ids, d.id)
		}
	}
	return ids
}

// AllOffline says why no log directory works any more, with the errors of all of them joined; nil while one does.
func (m *Manager) AllOffline() error {
	errs := make([]error, len(m.dirs))
	for i, d := range m.dirs {
		if errs[i] = d.failed(); errs[i] == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) applyConfigs(delta *image.Delta, img *image.Image) {
	topics, every := map[string]bool{}, false
	for _, r := range delta.Configs {
		switch r.Type {
		case image.ResourceTopic:
			topics[r.Name] = true
		case image.ResourceBroker:
			every = true
		}
	}
	if every {
		m.configureCleaner(img)
		m.configureMoves(img)
		for t := range img.Topics() {
			m.configureTopic(img, t)
		}
		return
	}
	for name := range topics {
		if t, ok := img.Topic(name); ok {
			m.configureTopic(img, t)
		}
	}
}

// configureTopic gives the partitions of a topic its settings under img.
func (m *Manager) configureTopic(img *image.Image, t *image.Topic) {
	s := m.settingsOf(img, t.Name)
	for id := range t.Partitions {
		if p, here := m.Partition(t.ID, wire.PartitionID(id)); here {
			p.setConfig(s.config, s.fsync)
		}
	}
}

func (m *Manager) configureMoves(img *image.Image) {
	if m.o.Moves != nil {
		m.mover.configure(m.o.Moves(img))
	}
}

func (m *Manager) configureCleaner(img *image.Image) {
	if m.o.Cleaner != nil {
		m.clean.configure(m.o.Cleaner(img))
	}
}

// delete ends a partition for good: nobody finds it any more, whoever waits is told, its directory is renamed durably
// and removed after file.delete.delay.ms.
func (m *Manager) delete(p *Partition) {
	led, epoch := p.leading()
	m.withdraw(p)
	p.stop(kerr.UnknownTopicOrPartition)
	m.mover.forget(p)
	m.fetchers.forget(p)
	m.assigner.forget(p)
	if led {
		m.resign(p, epoch)
	}
	h := p.at.Load()
	h.leave() // again: it may just have moved
	plog := h.plog.Load()
	if plog == nil {
		m.deleteUnopened(p)
		return
	}
	if h.dir.failed() != nil {
		return
	}
	to, err := h.condemn(plog)
	if err != nil {
		m.stay(h, err)
		return
	}
	m.house.removeAt(h.dir, to, plog, m.world.now().Add(p.Config().FileDeleteDelay))
}

// deleteUnopened sets aside the directories of a deleted partition whose log could not be opened.
func (m *Manager) deleteUnopened(p *Partition) {
	name := p.TP.String()
	for _, d := range m.dirs {
		if h := p.at.Load(); h.dir == d && h.made.Load() { // for a log that could not be made
			d.leaveAlone(p.TP)
		}
		if d.failed() != nil || !d.leftAlone(p.TP) {
			continue
		}
		if id, ok := d.topicIDOf(name); !ok || id != p.TopicID {
			continue // nobody knows whose it is, or it is another topic's
		}
		if err := m.finishDelete(d, name, p.TP, p.TopicID); err != nil {
			m.stay(&home{p: p, dir: d}, &log.StorageError{Op: "set aside", File: path.Join(d.path, name), Err: err})
		}
	}
}

// stay notes that the directory of a deleted partition could not be set aside.
func (m *Manager) stay(h *home, err error) {
	p := h.p
	m.mu.Lock()
	m.stays[p.TopicID] = true
	m.mu.Unlock()
	h.dir.leaveAlone(p.TP)
	m.world.logger.Error("directory of a deleted partition stays", "topic", p.TP.Topic, "partition", p.TP.Partition, "err", err)
	_ = h.failed(err) // logged; it matters only to the directory
}

// Gone reports whether no directory of this deleted topic is left here under its name. A log directory that is offline may
// hold one: while there is such, the answer is false, and the metadata has to remember the topic.
func (m *Manager) Gone(topic wire.UUID) bool {
	for _, d := range m.dirs {
		if d.failed() != nil {
			return false
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return !m.stays[topic] && !m.mover.holds(topic)
}

// Close stops everything in order: no more appends, what waits is told, flushers and housekeeping end, every log is
// flushed and closed, the checkpoints are written, and when all of that worked in a directory, last of all its
// clean-shutdown file. It goes on beyond the end of the context: what is durable need not be read again, however late.
func (m *Manager) Close(context.Context) error {
	m.scrub.close()
	m.clean.close()
	m.house.close()
	m.mover.close()
	m.fetchers.close()
	m.isr.close()
	m.assigner.close()
	parts := m.all()
	for _, p := range parts {
		p.stop(errStopped)
	}
	var errs []error
	for _, d := range m.dirs {
		d.flusher.close()
	}
	defer m.closeVolumes()
	for _, d := range m.dirs {
		if err := m.closeDir(d); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) closeDir(d *logDir) error {
	if err := d.failed(); err != nil {
		return err
	}
	err := m.closeLogs(d)
	if err == nil {
		err = errors.Join(d.checkpointRecoveryPoint(), d.checkpointLogStart(), d.checkpointHW(), d.checkpointCleaner())
	}
	if err != nil {
		return fmt.Errorf("close log directory %s: %w", d.path, err)
	}
	if d.unopened.Load() {
		m.world.logger.Warn("no clean-shutdown file: a log could not be opened, the next start recovers it", "dir", d.path)
		return nil
	}
	epoch := wire.NoBrokerEpoch
	if m.o.BrokerEpoch != nil {
		epoch = m.o.BrokerEpoch()
	}
	d.writeResting(m, epoch)
	return writeCleanShutdown(d.fs, d.path, epoch)
}

// parallel calls do for 0 to n-1 from at most RecoveryThreads goroutines and waits for all.
func (m *Manager) parallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, m.o.RecoveryThreads) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(int(i))
			}
		})
	}
	wg.Wait()
}

// localReplicas are the partitions of img that this broker holds, ordered.
func (m *Manager) localReplicas(img *image.Image, each func(t *image.Topic, p *image.Partition)) {
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			if slices.Contains(p.Replicas, m.o.NodeID) {
				each(t, p)
			}
		}
	}
}
