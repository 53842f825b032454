package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// replCluster is several data planes with their handlers: real managers over disks in memory, whose fetchers ask the others'
// handlers through the wire's encoding. The test is the controller. It runs in a bubble.
type replCluster struct {
	t      *testing.T
	nodes  map[wire.BrokerID]*replNode
	config map[string]*log.Config
	fsync  replica.FSync
	epochs wire.BrokerEpoch // the last that was given

	mu  sync.Mutex
	img *image.Image // the controller's
	pos image.Position
	// cut holds links from one node to another that lose everything; 0 is the controller.
	cut map[[2]wire.BrokerID]bool
	// loseAnswers has AlterPartitions take effect and its caller hear of an error.
	loseAnswers atomic.Bool
	// lateAnswers has the answer to AlterPartitions come after the image that holds its result.
	lateAnswers atomic.Bool
	// straggle has AlterPartitions hear of an error, and its request lie on the way until arrive.
	straggle atomic.Bool
	late     []func() []replica.ISRResult
	// spy sees, and may change, every request between brokers and its answer.
	spy   func(from, to wire.BrokerID, req kmsg.Request, resp kmsg.Response)
	asked atomic.Int64 // requests between brokers
	bytes atomic.Int64 // of them
}

type replNode struct {
	c      *replCluster
	id     wire.BrokerID
	fs     *memfs.FS
	faults *faultfs.FS // of this life, over fs
	lag    time.Duration
	metric *prometheus.Registry

	m     *replica.Manager
	fetch *fetch
	img   atomic.Pointer[image.Image]
	epoch atomic.Int64
	up    atomic.Bool
	held  atomic.Bool // metadata is kept back

	mu      sync.Mutex // of news and of applying them
	news    []metadataNews
	applied chan struct{}
	done    sync.WaitGroup
	stop    chan struct{}
}

type metadataNews struct {
	delta *image.Delta
	img   *image.Image
}

func newReplCluster(t *testing.T, n int) *replCluster {
	c := &replCluster{t: t, nodes: map[wire.BrokerID]*replNode{}, config: map[string]*log.Config{}, img: image.Empty("kit"),
		cut: map[[2]wire.BrokerID]bool{}}
	for id := wire.BrokerID(1); id <= wire.BrokerID(n); id++ {
		c.nodes[id] = &replNode{c: c, id: id, fs: memfs.New(time.Now), lag: 10 * time.Second}
		c.nodes[id].img.Store(image.Empty("kit"))
	}
	for id := wire.BrokerID(1); id <= wire.BrokerID(n); id++ {
		c.nodes[id].start()
	}
	return c
}

// close ends every node and joins what it started.
func (c *replCluster) close() {
	for _, n := range c.nodes {
		if n.up.Load() {
			n.halt()
		}
	}
}

// register begins a life of a broker, in service at once.
func (n *replNode) register() {
	n.c.epochs++
	n.epoch.Store(int64(n.c.epochs))
	n.c.commit(&coordrec.RegisterBrokerRecord{BrokerID: n.id, BrokerEpoch: n.c.epochs, IncarnationID: wire.UUID{0: byte(n.c.epochs)},
		LogDirs: []wire.UUID{{9, byte(n.id)}}})
}

func (n *replNode) start() {
	c := n.c
	logger := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		logger = slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	}
	n.register()
	n.metric, n.faults = prometheus.NewRegistry(), faultfs.New(n.fs)
	n.m = replica.NewManager(replica.Options{FS: vfs.FS(n.faults), Dirs: []replica.Dir{{Path: "/data", ID: wire.UUID{9, byte(n.id)}}}, NodeID: n.id,
		PreviousBrokerEpoch: wire.NoBrokerEpoch, BrokerEpoch: func() wire.BrokerEpoch { return wire.BrokerEpoch(n.epoch.Load()) },
		Logger: logger, Codecs: compress.New(), Registerer: n.metric, ReplicaLagTime: n.lag,
		TopicConfig: func(_ *image.Image, topic string) *log.Config {
			if cfg := c.config[topic]; cfg != nil {
				return cfg
			}
			return log.DefaultConfig()
		},
		FSync: func(*image.Image, string) replica.FSync { return c.fsync },
		AskLeader: func(ctx context.Context, to wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
			return c.ask(ctx, n, to, req)
		},
		AlterPartitions: func(_ context.Context, changes []replica.ISRChange) ([]replica.ISRResult, error) {
			return c.alter(n, changes)
		},
	})
	ids := int32(0)
	n.fetch = &fetch{images: n, parts: n.m, followers: n.m, endpoints: n, maxBytes: 55 << 20,
		sessions: newFetchSessions(100, time.Now, func() int32 { ids++; return ids })}
	c.mu.Lock()
	n.mu.Lock()
	n.news, n.applied, n.stop = nil, make(chan struct{}, 1), make(chan struct{})
	img := c.img
	n.mu.Unlock()
	n.img.Store(img)
	n.up.Store(true)
	c.mu.Unlock()
	if err := n.m.Open(c.t.Context(), img); err != nil {
		c.t.Fatal(err)
	}
	n.done.Go(n.apply)
}

// apply takes the metadata in order, as it comes.
func (n *replNode) apply() {
	for {
		select {
		case <-n.stop:
			return
		case <-n.applied:
		}
		for !n.held.Load() {
			n.mu.Lock()
			if len(n.news) == 0 {
				n.mu.Unlock()
				break
			}
			next := n.news[0]
			n.news = n.news[1:]
			n.mu.Unlock()
			if err := n.m.Apply(context.Background(), next.delta, next.img); err != nil {
				n.c.t.Error(err)
			}
			n.img.Store(next.img)
		}
	}
}

func (n *replNode) poke() {
	select {
	case n.applied <- struct{}{}:
	default:
	}
}

// hold keeps metadata back from the node until release.
func (n *replNode) hold() { n.held.Store(true) }

func (n *replNode) release() {
	n.held.Store(false)
	n.poke()
	synctest.Wait()
}

// halt stops the process cleanly.
func (n *replNode) halt() {
	n.c.t.Helper()
	n.end()
	if err := n.m.Close(context.Background()); err != nil {
		n.c.t.Fatal(err)
	}
}

func (n *replNode) end() {
	n.up.Store(false)
	close(n.stop)
	n.done.Wait()
}

// kill ends the node with what its disk then holds under the fate; the old process is closed over a copy nobody reads.
func (n *replNode) kill(fate memfs.Fate) {
	n.c.t.Helper()
	n.end()
	after := n.fs.Crash(fate, 1)
	if err := n.m.Close(context.Background()); err != nil {
		n.c.t.Fatal(err)
	}
	n.fs = after
}

// commit makes records metadata and sends it to every node.
func (c *replCluster) commit(records ...coordrec.MetadataRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.commitLocked(records...)
}

func (c *replCluster) commitLocked(records ...coordrec.MetadataRecord) {
	c.pos.Offset++
	img, delta, err := c.img.With(c.pos, records)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.img = img
	for _, n := range c.nodes {
		if n.up.Load() {
			n.mu.Lock()
			n.news = append(n.news, metadataNews{delta, img})
			n.mu.Unlock()
			n.poke()
		}
	}
}

// change is commit and the moment until it is in force everywhere.
func (c *replCluster) change(records ...coordrec.MetadataRecord) {
	c.commit(records...)
	synctest.Wait()
}

func (c *replCluster) topic(name string, partitions int, replicas ...wire.BrokerID) {
	id := kitTopicID(name)
	records := []coordrec.MetadataRecord{&coordrec.TopicRecord{Name: name, TopicID: id}}
	for p := range partitions {
		records = append(records, &coordrec.PartitionRecord{PartitionID: wire.PartitionID(p), TopicID: id, Replicas: replicas, ISR: replicas,
			Leader: replicas[0], Directories: make([]wire.UUID, len(replicas))})
	}
	c.change(records...)
}

// elect makes leader the leader of partition 0, with the given ISR.
func (c *replCluster) elect(topic string, leader wire.BrokerID, isr ...wire.BrokerID) {
	c.change(&coordrec.PartitionChangeRecord{TopicID: kitTopicID(topic), Leader: leader, ISR: isr, LeaderRecoveryState: coordrec.NoRecoveryChange})
}

// fence takes a broker out of service.
func (c *replCluster) fence(id wire.BrokerID) {
	c.change(&coordrec.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: wire.BrokerEpoch(c.nodes[id].epoch.Load()), Fenced: 1})
}

// unfence puts it into service again, in the same life.
func (c *replCluster) unfence(id wire.BrokerID) {
	c.change(&coordrec.BrokerRegistrationChangeRecord{BrokerID: id, BrokerEpoch: wire.BrokerEpoch(c.nodes[id].epoch.Load()), Fenced: -1})
}

func (c *replCluster) isr(topic string) []wire.BrokerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, _ := c.img.Partition(topic, 0)
	return slices.Sorted(slices.Values(p.ISR))
}

// alter is the controller's part of AlterPartition, by the rules that matter here.
func (c *replCluster) alter(n *replNode, changes []replica.ISRChange) ([]replica.ISRResult, error) {
	if c.lateAnswers.Load() {
		defer time.Sleep(10 * time.Millisecond) // of the bubble: until everybody is idle
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[[2]wire.BrokerID{n.id, 0}] || !n.up.Load() {
		return nil, errors.New("no controller")
	}
	if c.straggle.Load() {
		c.late = append(c.late, func() []replica.ISRResult { return c.decideLocked(n, changes) })
		return nil, errors.New("connection reset")
	}
	results := c.decideLocked(n, changes)
	if c.loseAnswers.Load() {
		return nil, errors.New("answer is lost")
	}
	return results, nil
}

func (c *replCluster) decideLocked(n *replNode, changes []replica.ISRChange) []replica.ISRResult {
	results := make([]replica.ISRResult, len(changes))
	for i, ch := range changes {
		results[i] = c.alterLocked(n, ch)
	}
	return results
}

// arrive has the controller read what lies on the way, and gives its answers, which nobody waits for any more.
func (c *replCluster) arrive() []replica.ISRResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	var results []replica.ISRResult
	for _, decide := range c.late {
		results = append(results, decide()...)
	}
	c.late = nil
	return results
}

func (c *replCluster) alterLocked(n *replNode, ch replica.ISRChange) replica.ISRResult {
	t, ok := c.img.TopicByID(ch.TopicID)
	if !ok {
		return replica.ISRResult{Err: kerr.UnknownTopicID}
	}
	p, _ := t.Partition(ch.Partition)
	switch {
	case ch.LeaderEpoch != p.LeaderEpoch:
		return replica.ISRResult{Err: kerr.FencedLeaderEpoch}
	case ch.PartitionEpoch != p.PartitionEpoch:
		return replica.ISRResult{Err: kerr.InvalidUpdateVersion}
	}
	var isr []wire.BrokerID
	for _, m := range ch.ISR {
		if b, ok := c.img.Broker(m.ID); !ok || !b.Active() || m.Epoch != wire.NoBrokerEpoch && m.Epoch != b.Epoch {
			return replica.ISRResult{Err: kerr.IneligibleReplica}
		}
		isr = append(isr, m.ID)
	}
	c.commitLocked(&coordrec.PartitionChangeRecord{TopicID: ch.TopicID, PartitionID: ch.Partition, ISR: isr, Leader: coordrec.NoLeaderChange,
		LeaderRecoveryState: coordrec.NoRecoveryChange})
	t, _ = c.img.TopicByID(ch.TopicID)
	p, _ = t.Partition(ch.Partition)
	if ch.LogEpoch > p.LeaderEpoch && ch.LogEpoch <= wire.MaxLogEpoch {
		r := p.Record(ch.TopicID)
		r.LeaderEpoch, r.PartitionEpoch = ch.LogEpoch+1, p.PartitionEpoch+1
		c.commitLocked(r)
		t, _ = c.img.TopicByID(ch.TopicID)
		p, _ = t.Partition(ch.Partition)
	}
	return replica.ISRResult{ISR: p.ISR, PartitionEpoch: p.PartitionEpoch}
}

// sever cuts and heal mends the links between two nodes; 0 is the controller.
func (c *replCluster) sever(a, b wire.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]wire.BrokerID{a, b}], c.cut[[2]wire.BrokerID{b, a}] = true, true
}

func (c *replCluster) heal(a, b wire.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cut, [2]wire.BrokerID{a, b})
	delete(c.cut, [2]wire.BrokerID{b, a})
}

func (c *replCluster) linked(a, b wire.BrokerID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut[[2]wire.BrokerID{a, b}] && c.nodes[a].up.Load() && c.nodes[b].up.Load()
}

// ask carries a request from one node to another and its answer back.
func (c *replCluster) ask(ctx context.Context, from *replNode, id wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
	to := c.nodes[id]
	if !c.linked(from.id, id) {
		return nil, errors.New("connection refused")
	}
	version := map[int16]int16{1: 18, 2: 11}[req.Key()]
	req.SetVersion(version)
	frame := req.AppendTo(nil)
	c.asked.Add(1)
	c.bytes.Add(int64(len(frame)))
	in := kmsg.RequestForKey(req.Key())
	in.SetVersion(version)
	if err := in.ReadFrom(frame); err != nil {
		return nil, err
	}
	handle := to.fetch.handle
	if req.Key() == 2 {
		handle = (&listOffsets{images: to, parts: to.m}).handle
	}
	w := &dataReply{done: make(chan struct{})}
	connCtx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	conn := server.NewConn(uint64(from.id), "PLAINTEXT", nil, nil)
	conn.SetPeer(peer.ID{ClusterID: "kit", NodeID: from.id})
	handle(connCtx, &server.Request{Key: req.Key(), Version: version, Msg: in, Conn: conn, Received: time.Now()}, w)
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if w.drops {
		return nil, fmt.Errorf("connection closed: %w", w.drop)
	}
	var body []byte
	if w.build != nil {
		body = flatten(c.t, w.build())
	} else {
		w.resp.SetVersion(version)
		body = w.resp.AppendTo(nil)
	}
	if !c.linked(from.id, id) {
		return nil, errors.New("connection lost")
	}
	resp := kmsg.ResponseForKey(req.Key())
	resp.SetVersion(version)
	if err := resp.ReadFrom(body); err != nil {
		return nil, err
	}
	c.mu.Lock()
	spy := c.spy
	c.mu.Unlock()
	if spy != nil {
		spy(from.id, id, req, resp)
	}
	return resp, nil
}

// The node is what its handlers depend on.
func (n *replNode) Image() *image.Image { return n.img.Load() }
func (n *replNode) Endpoint(_ *server.Conn, b wire.BrokerID) (string, int32, bool) {
	return "host", 9000 + int32(b), true
}

func (n *replNode) part(topic string, p wire.PartitionID) *replica.Partition {
	n.c.t.Helper()
	part, ok := n.m.ByName(topic, p)
	if !ok {
		n.c.t.Fatalf("node %d has no %s-%d", n.id, topic, p)
	}
	return part
}

// send begins a produce of one batch; the answer is read with produced.
func (n *replNode) send(acks int16, topic string, partition int32, records []byte) *dataReply {
	msg := produceRequest(acks, produced{topic, partition, records})
	msg.TimeoutMillis = 120_000
	msg.Version = 11
	w := &dataReply{done: make(chan struct{})}
	h := &produce{images: n, parts: n.m, endpoints: n, codecs: compress.New(), wall: time.Now}
	h.handle(context.Background(), &server.Request{Version: 11, ClientID: "c", Msg: msg, Conn: server.NewConn(99, "PLAINTEXT", nil, nil), Received: time.Now()}, w)
	return w
}

func (r *dataReply) produced() kmsg.ProduceResponseTopicPartition {
	<-r.done
	return r.resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

// produce sends one batch with acks=all and wants it taken.
func (n *replNode) produce(topic string, partition int32, records []byte) int64 {
	n.c.t.Helper()
	p := n.send(-1, topic, partition, records).produced()
	if p.ErrorCode != 0 {
		n.c.t.Fatalf("produce at node %d: error %d", n.id, p.ErrorCode)
	}
	return p.BaseOffset
}

// contents is the log of a partition, byte for byte, below end.
func (n *replNode) contents(topic string, p wire.PartitionID, end wire.Offset) []byte {
	n.c.t.Helper()
	dir := fmt.Sprintf("/data/%s-%d", topic, p)
	names, err := n.fs.List(dir)
	if err != nil {
		return nil
	}
	var out []byte
	for _, name := range names {
		if !bytes.HasSuffix([]byte(name), []byte(".log")) {
			continue
		}
		data, err := vfs.ReadFile(n.fs, dir+"/"+name)
		if err != nil {
			n.c.t.Fatal(err)
		}
		for {
			b, rest, err := batch.Next(data)
			if err != nil || b.BaseOffset() >= end {
				break
			}
			out = append(out, b...)
			data = rest
		}
	}
	return out
}

// same wants the partition's logs equal on the given nodes up to the lowest log end, and that to be at least end.
func (c *replCluster) same(topic string, p wire.PartitionID, end wire.Offset, ids ...wire.BrokerID) {
	c.t.Helper()
	first := c.nodes[ids[0]].contents(topic, p, end)
	for _, id := range ids {
		n := c.nodes[id]
		if leo := n.part(topic, p).Offsets().LEO; leo != end {
			c.t.Errorf("node %d: log of %s-%d ends at %d, want %d", id, topic, p, leo, end)
		}
		if got := n.contents(topic, p, end); !bytes.Equal(got, first) {
			c.t.Errorf("logs of %s-%d differ: node %d has %d bytes, node %d %d", topic, p, id, len(got), ids[0], len(first))
		}
	}
}

// metric is the value of a counter or gauge of the node, added over its labels.
func (n *replNode) value(name string) float64 {
	n.c.t.Helper()
	families, err := n.metric.Gather()
	if err != nil {
		n.c.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func removeTopicRecord(topic string) coordrec.MetadataRecord {
	return &coordrec.RemoveTopicRecord{TopicID: kitTopicID(topic)}
}
