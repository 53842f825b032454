package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

const (
	quorumCluster = "5L6g3nShT-eMCtK--X86sw"
	quorumSecret  = "a secret of this cluster alone"
	quorumPort    = ":9093"
)

// Quorum is some controllers without brokers: real raft over the simulated network, proven connections, crash disks.
type Quorum struct {
	t    testing.TB
	seed uint64
	Net  *Network
	Log  *Logs
	// SnapshotBytes is raftctl.Options.SnapshotBytes of every member.
	SnapshotBytes int64

	mu      sync.Mutex // guards members' growth
	members []*Member
	dying   sync.WaitGroup
}

// NewQuorum makes a quorum without members; it ends with the test.
func NewQuorum(t testing.TB, seed uint64) *Quorum {
	q := &Quorum{t: t, seed: seed, Net: NewNetwork(seed, DefaultLatency), Log: &Logs{}}
	t.Cleanup(func() {
		for _, m := range q.members {
			if m.run.Load() != nil {
				if err := m.Stop(); err != nil {
					t.Errorf("stop controller %s: %v", m.ID, err)
				}
			}
		}
		q.Net.Close()
		q.dying.Wait()
		if t.Failed() {
			t.Logf("what the controllers said:\n%s", q.Log.String())
		}
	})
	return q
}

// Member is one controller's machine.
type Member struct {
	ID       peer.ID
	q        *Quorum
	host     *Host
	disk     *memfs.FS
	faults   func(fs *faultfs.FS) // is given the disk's faults at each start; nil: it has none
	founders []peer.ID
	run      atomic.Pointer[running] // nil while it does not run
}

// running is a controller's process.
type running struct {
	ctl     *raftctl.Controller
	late    atomic.Pointer[raftctl.Controller] // ctl, for what may be called before it is there
	streams *peer.Streams
	lis     net.Listener
	wg      sync.WaitGroup
}

// Found adds n members of a new cluster: the first founds it, the others join.
func (q *Quorum) Found(n int) []*Member {
	for i := range n {
		q.Add(i+1, 0)
	}
	for _, m := range q.members {
		q.members[0].founders = append(q.members[0].founders, m.ID)
	}
	return q.members
}

// Add adds a machine with an empty disk that joins; life tells the directories of one node apart.
func (q *Quorum) Add(node, life int) *Member {
	m := &Member{
		ID: peer.ID{ClusterID: quorumCluster, NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{0: 1, 14: byte(life), 15: byte(node)}},
		q:  q, host: q.Net.Host(fmt.Sprintf("n%d", node)), disk: memfs.New(time.Now),
	}
	q.mu.Lock()
	q.members = append(q.members, m)
	q.mu.Unlock()
	return m
}

// Begin boots the machine and starts the controller, which may be without a quorum.
func (m *Member) Begin(ctx context.Context) error {
	identity, err := peer.NewIdentity(m.ID, []byte(quorumSecret))
	if err != nil {
		return err
	}
	p := m.host.Boot()
	r := &running{}
	r.streams = peer.NewStreams(peer.StreamsOptions{
		Identity: identity, Dial: p.Dial,
		Resolve: func(id peer.ID) []string { return []string{meets(id)} },
		Broken: func(id peer.ID) {
			if ctl := r.late.Load(); ctl != nil {
				ctl.SuspectLeader(id)
			}
		},
	})
	if r.lis, err = p.Listen("tcp", quorumPort); err != nil {
		return err
	}
	cfg, _, err := config.Load(config.Sources{Set: []string{"log.dirs=/data"}})
	if err != nil {
		return err
	}
	r.ctl, err = raftctl.Begin(ctx, raftctl.Options{
		FS: m.fs(), Dir: "/raft", SnapshotBytes: m.q.SnapshotBytes, ClusterID: m.ID.ClusterID, NodeID: m.ID.NodeID, DirectoryID: m.ID.DirectoryID,
		Seed: mix(m.q.seed, uint64(m.ID.NodeID), 1), NewUUID: newIDs(mix(m.q.seed, uint64(m.ID.NodeID), uint64(time.Now().UnixNano()))),
		Logger:  slog.New(slog.NewTextHandler(m.q.Log, nil)).With("node", m.host.name),
		Configs: api.NewConfigs(cfg), Defaults: raftctl.Defaults{NumPartitions: 1, ReplicationFactor: 1},
		Publish: func(context.Context, *image.Delta, *image.Image) {},
		Streams: r.streams, Join: m.founders == nil, Founders: m.founders, Reach: reach(p),
		ReachNode: func(ctx context.Context, id peer.ID) error {
			c, err := p.Dial(ctx, "tcp", meets(id))
			if err != nil {
				return err
			}
			return c.Close()
		},
	})
	r.late.Store(r.ctl)
	if err != nil {
		return errors.Join(err, r.lis.Close())
	}
	r.wg.Go(func() { r.accept(identity) })
	m.run.Store(r)
	return nil
}

// fs is the disk as the controller of this start sees it.
func (m *Member) fs() vfs.FS {
	if m.faults == nil {
		return m.disk
	}
	fs := faultfs.New(m.disk)
	m.faults(fs)
	return fs
}

// meets is where a node meets others.
func meets(id peer.ID) string { return fmt.Sprintf("n%d%s", id.NodeID, quorumPort) }

// accept answers handshakes; everything else is closed.
func (r *running) accept(identity *peer.Identity) {
	for {
		conn, err := r.lis.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() {
			_, from, err := identity.Accept(conn, func(kind peer.Kind, id peer.ID) error {
				if kind != peer.Raft {
					return errors.New("this node carries raft only")
				}
				return r.ctl.Admit(id)
			})
			if err != nil {
				_ = conn.Close()
				return
			}
			r.streams.Deliver(conn, from)
		})
	}
}

// Controller is the running controller.
func (m *Member) Controller() *raftctl.Controller { return m.run.Load().ctl }

// Stop is a clean stop.
func (m *Member) Stop() error {
	r := m.run.Swap(nil)
	err := r.end()
	m.host.Kill()
	return err
}

func (r *running) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	err := errors.Join(r.ctl.Close(ctx), r.lis.Close())
	r.wg.Wait()
	return err
}

// Kill ends the process; PowerOff ends the machine. What is left of it ends on the old disk.
func (m *Member) Kill() { m.crash(m.host.Kill, memfs.Keep, 0) }

// PowerOff ends the machine; of what was not synced the disk keeps what fate says.
func (m *Member) PowerOff(fate memfs.Fate, seed uint64) { m.crash(m.host.PowerOff, fate, seed) }

func (m *Member) crash(cut func(), fate memfs.Fate, seed uint64) {
	if m.run.Load() == nil {
		m.q.t.Fatalf("controller %s does not run", m.ID)
	}
	cut()
	m.disk = m.disk.Crash(fate, seed)
	r := m.run.Swap(nil)
	m.q.dying.Go(func() { _ = r.end() })
}

// Leader waits for a member that has claimed the controller role, and that the others follow; nil when d has passed.
func (q *Quorum) Leader(d time.Duration) *Member {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Millisecond) {
		q.mu.Lock()
		members := q.members
		q.mu.Unlock()
		for _, m := range members {
			if r := m.run.Load(); r != nil && r.ctl.Leading() {
				return m
			}
		}
	}
	return nil
}

// leading is a controller that leads now; nil if none does.
func (q *Quorum) leading() *raftctl.Controller {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range q.members {
		if r := m.run.Load(); r != nil && r.ctl.Leading() {
			return r.ctl
		}
	}
	return nil
}

// Digest is a hash of everything in an image (C15).
func Digest(img *image.Image) string {
	h := sha256.New()
	for r := range img.Records() {
		h.Write(coordrec.AppendMetadata(nil, r)) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// newIDs draws ids from a seed.
func newIDs(seed uint64) func() wire.UUID {
	var mu sync.Mutex
	n := uint64(0)
	return func() wire.UUID {
		mu.Lock()
		defer mu.Unlock()
		n++
		var u wire.UUID
		for i := range u {
			u[i] = byte(mix(seed, n, uint64(i)))
		}
		u[0] = 0x40 // its text does not begin with a dash, and it is not reserved
		return u
	}
}

// reach is Options.Reach over the simulated network.
func reach(p *Process) func(ctx context.Context, b *image.Broker) error {
	return func(ctx context.Context, b *image.Broker) error {
		if len(b.Endpoints) == 0 {
			return errors.New("no endpoint")
		}
		c, err := p.Dial(ctx, "tcp", net.JoinHostPort(b.Endpoints[0].Host, "9092"))
		if err != nil {
			return err
		}
		return c.Close()
	}
}
