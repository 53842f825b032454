package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/filepool"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// minDescriptors is the least budget of descriptors for partition logs where none is configured.
const minDescriptors = 128

// Broker is one node: controller and broker in one. Make it with New, then Start, Wait, Close.
type Broker struct {
	env     Env
	cfg     *config.Config
	ids     *ids
	logger  *slog.Logger
	topics  topicConfigs
	codecs  *compress.Codecs
	started time.Time

	disks       *diskWatch // nil for a node alone without a proof for others, which has nobody to give anything up to
	quorum      config.Quorum
	credentials peer.Credentials
	cluster     *cluster      // nil for a node alone without a proof for others
	unusable    []replica.Dir // of log.dirs: they failed before the start
	identity    *Identity
	addresses   *Addresses
	controller  *raftctl.Controller
	health      atomic.Pointer[raftctl.Controller] // the same, for the health pages, which are asked while Start runs
	groups      *groupcoord.Service
	txns        *txn.Service
	active      *control.Access    // the way to the active controller
	life        *control.Lifecycle // this broker's under the controller; nil where the node is alone
	producerIDs *raftctl.ProducerIDAllocator
	routes      routes
	server      *server.Server
	httpd       *httpd

	// applying is held while published metadata is applied, and while the replicas are opened: both read and change them
	// in the order of the metadata.
	applying xsync.Mutex
	// electedTxns are elections of transaction coordinators that wait for the metadata to be published; under applying.
	electedTxns []func()
	replicas    atomic.Pointer[replica.Manager] // nil until opened
	img         atomic.Pointer[image.Image]     // what the replicas and coordinators have applied; never nil
	epoch       atomic.Int64                    // wire.BrokerEpoch of this incarnation
	arrivals    arrivals
	ready       atomic.Bool

	reap chan struct{} // holds at most one wake-up of the reaper
	// dirsFailed holds at most one wake-up of the watch over log directories.
	dirsFailed chan struct{}
	cancel     context.CancelFunc
	wg         sync.WaitGroup // the reaper, the watch over transactions
	// markers are requests to other brokers under way.
	markers sync.WaitGroup

	stop     chan struct{} // closed by Close
	stopOnce sync.Once
	closeErr error
}

// New makes a broker and touches nothing yet. Errors say which setting is wrong.
func New(env Env, cfg *config.Config) (*Broker, error) {
	if env.Hostname == nil {
		env.Hostname = os.Hostname
	}
	b := &Broker{
		env: env, cfg: cfg, ids: newIDs(env.Seed), logger: env.Logger, topics: topicConfigs{cfg},
		codecs: compress.New(), reap: make(chan struct{}, 1), dirsFailed: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	b.img.Store(image.Empty(""))
	listeners, err := cfg.Listeners()
	if err != nil {
		return nil, err
	}
	b.routes.controller = map[string]bool{}
	for _, l := range listeners {
		b.routes.controller[l.Name] = l.Controller
	}
	hostname, _ := env.Hostname() // unknown: the node does not recognise its own address by it
	if b.quorum, err = cfg.Quorum(hostname); err != nil {
		return nil, err
	}
	if !b.quorum.Alone && !cfg.ProvesNodes() {
		return nil, secretError(b.ids, b.cfg)
	}
	if cfg.ProvesNodes() {
		b.disks = newDiskWatch(env.FS, append([]string{cfg.MetadataDir()}, cfg.LogDirs()...), cfg.Duration("kaja.disk.hang.timeout.ms"), b.logger)
		b.env.FS = b.disks.fs
	}
	b.addresses = NewAddresses(wire.BrokerID(cfg.NodeID()), listeners, b.bound, b.Image)
	return b, nil
}

// Image is the metadata that every request is answered from: what the replicas and coordinators have applied.
func (b *Broker) Image() *image.Image { return b.img.Load() }

func (b *Broker) nodeID() wire.BrokerID { return wire.BrokerID(b.cfg.NodeID()) }

func (b *Broker) brokerEpoch() wire.BrokerEpoch { return wire.BrokerEpoch(b.epoch.Load()) }

func (b *Broker) bound(listener string) net.Addr {
	if b.server == nil {
		return nil
	}
	return b.server.Addr(listener)
}

// Start brings the node up and returns when clients are served. On an error what was started is ended again; the error
// is a *StartError where the operator can do something about it.
func (b *Broker) Start(ctx context.Context) (err error) {
	b.started = time.Now()
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close(context.WithoutCancel(ctx)))
		}
	}()
	if b.disks != nil {
		b.disks.Start()
	}
	if b.credentials, err = credentials(b.env, b.cfg); err != nil {
		return err
	}
	// The ports come first: a port that is taken must leave no identity behind.
	if err := b.listen(); err != nil {
		return err
	}
	if err := b.identify(); err != nil {
		return err
	}
	if err := b.openCluster(); err != nil {
		return err
	}
	if err := b.openController(ctx); err != nil {
		return err
	}
	if b.cluster != nil {
		b.fillRoutes(false)
		b.server.ServeNodes()
	}
	if !b.cfg.Broker() {
		if err := b.server.Start(); err != nil {
			return err
		}
		b.ready.Store(true)
		return nil
	}
	if err := b.join(ctx); err != nil {
		return b.blameDisk(err)
	}
	b.fillRoutes(true)
	reaping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	b.cancel = cancel
	b.wg.Go(func() { b.reaper(reaping) })
	b.wg.Go(func() { b.watchTxns(reaping) })
	b.wg.Go(func() { b.watchDirs(reaping) })
	if b.life != nil {
		b.wg.Go(func() { b.watchMetadata(reaping) })
		if err := b.unfence(ctx); err != nil {
			return err
		}
	}
	if err := b.server.Start(); err != nil {
		return err
	}
	b.ready.Store(true)
	return nil
}

// listen binds every listener and the HTTP page.
func (b *Broker) listen() error {
	listeners, err := b.cfg.Listeners()
	if err != nil {
		return err
	}
	limits, err := serverLimits(b.cfg)
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{
		Listeners: b.serverListeners(listeners), Routes: &b.routes, Peers: b.serverPeers(), Logger: b.logger, Registerer: b.env.Registerer,
		Listen: b.env.Listen, Limits: limits,
	})
	if err != nil {
		return err
	}
	b.server = s
	if err := s.Listen(); err != nil {
		return listenError(err)
	}
	b.httpd, err = startHTTPD(httpdOptions{
		Addr: b.cfg.String("kaja.http.listener"), Configured: b.cfg.IsSet("kaja.http.listener"), Listen: b.env.Listen,
		Gatherer: b.env.Gatherer, Logger: b.logger, Live: b.live, Ready: b.readiness,
	})
	return err
}

// identify finds out who this node is and locks its directories.
func (b *Broker) identify() error {
	usable := b.usableDirs()
	id, err := OpenIdentity(IdentityOptions{
		FS: b.env.FS, LogDirs: usable, MetadataDir: b.cfg.MetadataDir(), NodeID: b.nodeID(),
		ClusterID: b.cfg.String("kaja.cluster.id"), Alone: b.quorum.Alone, Forming: !b.quorum.Alone, NewUUID: b.ids.uuid,
	})
	if err != nil {
		return err
	}
	b.identity = id
	if f := id.Formatted; f != nil && id.MayBootstrap && len(f.Missing) > 0 {
		b.logger.Warn("the directory was formatted for features that are not there yet", slog.Any("features", f.Missing))
	}
	b.img.Store(image.Empty(id.ClusterID))
	return nil
}

func (b *Broker) openController(ctx context.Context) error {
	var seed [8]byte
	b.ids.read(seed[:])
	c, err := b.startController(ctx, raftctl.Options{
		FS: b.env.FS, Dir: b.identity.RaftDir(), ClusterID: b.identity.ClusterID, NodeID: b.nodeID(),
		DirectoryID: b.identity.Metadata.ID, Seed: seed64(seed), NewUUID: b.ids.uuid, Logger: b.logger,
		Registerer: b.env.Registerer,
		Configs:    api.NewConfigs(b.cfg),
		Defaults: raftctl.Defaults{
			NumPartitions:     int32(b.cfg.Int("num.partitions")),
			ReplicationFactor: int16(b.cfg.Int("default.replication.factor")),
		},
		Publish:  b.publish,
		Features: api.BrokerFeatures(),
		Holds:    !b.identity.MayBootstrap,
		Levels:   b.identity.levels(),

		Balance: b.balance(), InternalFactors: b.internalFactors(), DiskHangs: func() bool { return b.disks.Err() != nil },
	})
	if err != nil && b.cluster != nil && ctx.Err() != nil {
		return err
	}
	if err != nil {
		return b.metadataError(err)
	}
	b.controller = c
	b.active = b.newAccess(b.lanes())
	return nil
}

// metadataError says what to do about a metadata store that does not open.
func (b *Broker) metadataError(err error) error {
	if start, ok := errors.AsType[*StartError](err); ok {
		return start
	}
	if noRoom(err) || readOnly(err) {
		return dirError("open the metadata in "+b.identity.RaftDir(), b.identity.Metadata.Path, err)
	}
	todo := "Nothing was changed. If the disk is at fault, restore the directory from a backup."
	if errors.Is(err, raftctl.ErrNoMetadata) {
		todo = "Nothing was changed. Restore the raft directory that belongs to this data, or start with other log.dirs."
	}
	return &StartError{What: "open the metadata in " + b.identity.RaftDir(), Err: err, Todo: todo}
}

// join registers this incarnation, opens its replicas under the metadata that the registration made, and lets it lead.
func (b *Broker) join(ctx context.Context) error {
	dirs := make([]replica.Dir, len(b.identity.Dirs))
	dirIDs := make([]wire.UUID, len(dirs))
	for i, d := range b.identity.Dirs {
		dirs[i], dirIDs[i] = replica.Dir{Path: d.Path, ID: d.ID}, d.ID
	}
	dirs = append(dirs, b.unusable...)
	before := wire.NoBrokerEpoch
	if r, ok := b.Image().Broker(b.nodeID()); ok {
		before = r.Epoch
	}
	hostname, err := b.env.Hostname()
	if err != nil {
		return fmt.Errorf("find out the name of this machine: %w", err)
	}
	epoch, err := b.register(ctx, raftctl.Registration{
		ID: b.nodeID(), Incarnation: b.ids.uuid(), Endpoints: b.addresses.Registration(hostname),
		Features: api.BrokerFeatures(), Rack: rack(b.cfg), LogDirs: dirIDs,
		PreviousEpoch: replica.PreviousBrokerEpoch(b.env.FS, dirs),
	})
	if err != nil {
		return fmt.Errorf("register the broker: %w", err)
	}
	b.epoch.CompareAndSwap(0, int64(epoch)) // it may have had to register again already
	b.producerIDs = b.newProducerIDs()
	b.applying.Lock() // metadata are published already
	b.groups = b.newGroups()
	b.txns = b.newTxns()
	b.applying.Unlock()
	if err := b.openReplicas(ctx, dirs, before); err != nil {
		return err
	}
	if b.life != nil {
		b.producerIDs.Prefetch()
		return nil // Start says that it is ready
	}
	if err := b.controller.UnfenceBroker(ctx, b.nodeID(), epoch); err != nil {
		return fmt.Errorf("unfence the broker: %w", err)
	}
	return nil
}

func rack(cfg *config.Config) *string {
	if !cfg.IsSet("broker.rack") {
		return nil
	}
	r := cfg.String("broker.rack")
	return &r
}

// descriptors is how many descriptors partition logs may use; the rest is for connections and the metadata.
func (b *Broker) descriptors() int {
	if n := b.cfg.Int("kaja.open.files.max"); n > 0 {
		return n
	}
	return max(vfs.DescriptorLimit()/2, minDescriptors)
}

func (b *Broker) openReplicas(ctx context.Context, dirs []replica.Dir, before wire.BrokerEpoch) error {
	m := replica.NewManager(replica.Options{
		FS: filepool.New(b.env.FS, b.descriptors()), Dirs: dirs, NodeID: b.nodeID(), PreviousBrokerEpoch: before,
		BrokerEpoch: b.brokerEpoch,
		Wall:        b.env.Wall, Logger: b.logger, Registerer: b.env.Registerer, Codecs: b.codecs,
		TopicConfig: b.topics.log, FSync: b.topics.fsync, Cleaner: b.topics.cleaner, Moves: b.topics.moves,
		Scrub:           replica.ScrubConfig{BytesPerSecond: b.cfg.Int64("kaja.scrub.bytes.per.second"), Interval: b.cfg.Duration("kaja.scrub.interval.ms")},
		ReplicaLagTime:  b.cfg.Duration("replica.lag.time.max.ms"),
		ClockJumpHold:   b.cfg.Duration("kaja.clock.jump.hold.ms"),
		SpaceReserve:    b.cfg.Int64("kaja.disk.reserve.bytes"),
		RecoveryThreads: b.cfg.Int("num.recovery.threads.per.data.dir"),
		Intervals: replica.Intervals{
			HWCheckpoint:  b.cfg.Duration("replica.high.watermark.checkpoint.interval.ms"),
			RecoveryPoint: b.cfg.Duration("log.flush.offset.checkpoint.interval.ms"),
			LogStart:      b.cfg.Duration("log.flush.start.offset.checkpoint.interval.ms"),
			Retention:     b.cfg.Duration("log.retention.check.interval.ms"),
		},
		AskLeader: b.askLeader(), Unsure: b.unsure, Fetch: b.fetchConfig(), AlterPartitions: b.alterPartitions, AssignDirs: b.assignDirs, DirFailed: b.dirFailed, Damaged: b.damaged,
		Elected: b.elected, Resigned: b.resigned,
	})
	b.applying.Lock()
	defer b.applying.Unlock()
	if err := m.Open(ctx, b.Image()); err != nil {
		return fmt.Errorf("open the partitions: %w", err)
	}
	b.replicas.Store(m)
	b.runElections()
	if b.env.Registerer != nil {
		b.env.Registerer.MustRegister(newOpenTxns(m, b.env.Wall, b.txns))
		if !b.active.Alone() {
			b.env.Registerer.MustRegister(b.metadataAge())
		}
	}
	return nil
}

// Controller is this node's part in the metadata quorum, for tests and harnesses; nil before it has joined or founded one.
func (b *Broker) Controller() *raftctl.Controller { return b.health.Load() }

// ClusterID and DirectoryID say which node of which cluster this is, for tests and harnesses; Start has returned.
func (b *Broker) ClusterID() string { return b.identity.ClusterID }

// DirectoryID is the id of the metadata directory.
func (b *Broker) DirectoryID() wire.UUID { return b.identity.Metadata.ID }

// Wait blocks until the node ends: nil after Close, else why it cannot go on. Only the metadata store can end a node.
func (b *Broker) Wait() error {
	select {
	case <-b.stop:
		return nil
	case <-b.controller.Done():
		select {
		case <-b.stop:
			return nil
		default:
		}
		return b.blameDisk(b.controller.Err())
	}
}

// blameDisk puts a failure of the metadata store in the place of what it made fail, and says of a disk without room what to do.
func (b *Broker) blameDisk(err error) error {
	switch cause := b.controller.Err(); {
	case noRoom(cause):
		return dirError("write the metadata in "+b.identity.RaftDir(), b.identity.Metadata.Path, cause)
	case cause != nil:
		return fmt.Errorf("the metadata store failed: %w", cause)
	case noRoom(err):
		return dirError("start on "+strings.Join(b.cfg.LogDirs(), ", "), strings.Join(b.cfg.LogDirs(), ", "), err)
	}
	return err
}

// Close ends the node in the reverse order of its start. Requests that wait are answered, partitions are flushed and
// marked clean. It may be called at any time, also after a failed Start; the second call returns what the first did.
func (b *Broker) Close(ctx context.Context) error {
	b.stopOnce.Do(func() {
		close(b.stop)
		b.ready.Store(false)
		b.closeErr = b.close(ctx)
	})
	return b.closeErr
}

func (b *Broker) close(ctx context.Context) error {
	defer b.disks.Close()
	var errs []error
	if b.life != nil { // others take over while clients are still served here
		errs = append(errs, b.leave(ctx))
		b.life.Close()
	}
	if b.cluster != nil && b.controller != nil { // who leads the metadata and reads no heartbeats fences everybody
		b.controller.HandOver(ctx)
	}
	if b.server != nil {
		b.server.Drain()
	}
	if b.cluster != nil {
		b.cluster.drain()
	}
	if b.cancel != nil {
		b.cancel()
		b.wg.Wait()
	}
	if b.life == nil {
		errs = append(errs, b.leave(ctx))
	}
	if b.txns != nil {
		b.txns.Close()
	}
	b.markers.Wait()
	if b.groups != nil {
		b.groups.Close()
	}
	if b.producerIDs != nil {
		b.producerIDs.Close()
	}
	if b.server != nil {
		errs = append(errs, b.server.Close(ctx))
	}
	if m := b.replicas.Load(); m != nil {
		errs = append(errs, m.Close(ctx))
	}
	if b.controller != nil {
		errs = append(errs, b.controller.Close(ctx))
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.close())
	}
	if b.httpd != nil {
		errs = append(errs, b.httpd.Close(ctx))
	}
	if b.identity != nil {
		errs = append(errs, b.identity.Close())
	}
	return errors.Join(errs...)
}

// live and readiness answer the health pages.
func (b *Broker) live() error {
	if c := b.health.Load(); c != nil {
		return c.Err()
	}
	return nil
}

func (b *Broker) readiness() error {
	if err := b.live(); err != nil {
		return err
	}
	if !b.ready.Load() {
		return errors.New("starting or stopping")
	}
	return nil
}

// Screen is what a person is told when the node has started.
func (b *Broker) Screen(version string, took time.Duration, ignored int) Screen {
	s := Screen{
		Version: version, ClusterID: b.identity.ClusterID, NodeID: b.nodeID(), Took: took,
		Listeners: b.addresses.ScreenListeners(), Dirs: b.cfg.LogDirs(), New: b.identity.New, Ignored: ignored,
	}
	if b.httpd != nil {
		s.HTTP = b.httpd.addr
	}
	if b.cluster != nil {
		s.Quorum = b.cluster.describe(b.peerID())
	}
	return s
}

func seed64(b [8]byte) uint64 {
	var v uint64
	for _, x := range b {
		v = v<<8 | uint64(x)
	}
	return v
}
