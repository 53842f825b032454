package api

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metaNode is a controller with one unfenced broker, and the handlers over it.
type metaNode struct {
	controller *raftctl.Controller
	config     *config.Config
	handlers   map[int16]server.HandlerFunc
	conn       *server.Conn
}

// hereEndpoints knows broker 1 alone.
type hereEndpoints struct{}

func (hereEndpoints) Endpoint(_ *server.Conn, b wire.BrokerID) (string, int32, bool) {
	return "127.0.0.1", 19092, b == 1
}

// caught is a Responder that keeps the answer.
type caught struct{ resp kmsg.Response }

func (c *caught) Reply(r kmsg.Response)           { c.resp = r }
func (c *caught) ReplyFunc(func() []wire.Segment) {}
func (c *caught) Drop(error)                      {}

func testUUIDs() func() wire.UUID {
	var mu sync.Mutex
	n := uint16(0)
	return func() wire.UUID {
		mu.Lock()
		defer mu.Unlock()
		n++
		return wire.UUID{0: 0xbb, 14: byte(n >> 8), 15: byte(n)}
	}
}

func newMetaNode(t testing.TB, set map[string]string) *metaNode {
	t.Helper()
	c := config.Default("/data")
	for name, value := range set {
		next, err := c.With(name, value)
		if err != nil {
			t.Fatal(err)
		}
		c = next
	}
	ctl, err := raftctl.Open(t.Context(), raftctl.Options{
		FS: memfs.New(time.Now), Dir: "/meta", ClusterID: "5L6g3nShT-eMCtK--X86sw", NodeID: 1,
		DirectoryID: wire.UUID{15: 200}, NewUUID: testUUIDs(), Logger: slog.New(slog.DiscardHandler),
		Configs: NewConfigs(c), Defaults: raftctl.Defaults{NumPartitions: 1, ReplicationFactor: 1},
		Publish: func(context.Context, *image.Delta, *image.Image) {}, Features: BrokerFeatures(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ctl.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	epoch, err := ctl.RegisterBroker(t.Context(), raftctl.Registration{
		ID: 1, Incarnation: wire.UUID{15: 1}, LogDirs: []wire.UUID{{15: 201}}, PreviousEpoch: wire.NoBrokerEpoch,
		Features: map[string]image.VersionRange{image.FeatureMetadataVersion: {Min: 33, Max: 33}, image.FeatureELR: {Min: 0, Max: 1}, image.FeatureTransactionVersion: {Min: 0, Max: 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := ctl.UnfenceBroker(t.Context(), 1, epoch); err != nil {
		t.Fatal(err)
	}
	ids := raftctl.NewProducerIDAllocator(raftctl.ProducerIDOptions{Wait: time.Minute, Allocate: func(ctx context.Context) (raftctl.ProducerIDs, error) {
		return ctl.AllocateProducerIDs(ctx, 1, epoch)
	}})
	t.Cleanup(ids.Close)
	loggers := oneLogger{new("ERROR")}
	alter := alterConfigs{ctl, 1, loggers}
	n := &metaNode{controller: ctl, config: c, conn: server.NewConn(1, "PLAINTEXT", nil, nil)}
	n.handlers = map[int16]server.HandlerFunc{
		3:  metadata{ctl, hereEndpoints{}, ctl, NewOffsetsTopic(ctl, ctl, c), NewTxnTopic(ctl, ctl, c), c.Bool("auto.create.topics.enable")}.handle,
		19: createTopics{ctl, ctl, c, 1}.handle, 20: deleteTopics{ctl, c.Bool("delete.topic.enable")}.handle,
		22: initProducerID{ids: ids}.handle, 32: describeConfigs{ctl, c, 1, loggers}.handle, 33: alter.handle,
		37: createPartitions{ctl}.handle, 44: incrementalAlterConfigs{alter}.handle,
		43: electLeaders{ctl, ctl}.handle, 55: describeQuorum{ctl, func(wire.BrokerID) (image.Endpoint, bool) { return image.Endpoint{}, false }}.handle,
		57: updateFeatures{ctl}.handle, 64: unregisterBroker{ctl}.handle,
		60: describeCluster{ctl, hereEndpoints{}, func(string) bool { return false }, nil}.handle,
		74: listConfigResources{ctl}.handle,
		75: describeTopicPartitions{ctl, hereEndpoints{}, c.Int("max.request.partition.size.limit")}.handle,
	}
	return n
}

// ask sends req through the wire format of its version and gives the answer the same way.
func (n *metaNode) ask(t testing.TB, req kmsg.Request) kmsg.Response {
	t.Helper()
	in := kmsg.RequestForKey(req.Key())
	in.SetVersion(req.GetVersion())
	if err := in.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	var w caught
	n.handlers[req.Key()](t.Context(), &server.Request{Key: req.Key(), Version: req.GetVersion(), Msg: in, Conn: n.conn}, &w)
	if w.resp == nil {
		t.Fatalf("key %d: no answer", req.Key())
	}
	out := kmsg.ResponseForKey(req.Key())
	out.SetVersion(req.GetVersion())
	if err := out.ReadFrom(w.resp.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return out
}

// B53: fifty clients that meet a new name at once make one topic, and find it when they ask again.
func TestFirstContactsMakeOneTopic(t *testing.T) {
	n := newMetaNode(t, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			req := metadataReq(13, "fresh")
			req.AllowAutoTopicCreation = true
			if code := n.ask(t, req).(*kmsg.MetadataResponse).Topics[0].ErrorCode; code != 3 && code != 0 {
				t.Errorf("first contact answered with %d, want 3 or 0", code)
			}
		})
	}
	wg.Wait()
	again := n.ask(t, metadataReq(13, "fresh")).(*kmsg.MetadataResponse).Topics[0]
	if again.ErrorCode != 0 || len(again.Partitions) != 1 || again.Partitions[0].Leader != 1 {
		t.Errorf("second contact: %+v, want one partition led by 1", again)
	}
	if got := n.controller.Image().NumTopics(); got != 1 {
		t.Errorf("%d topics, want 1", got)
	}
}

func TestNothingIsAutoCreatedWhereNobodyAskedFor(t *testing.T) {
	tests := map[string]struct {
		set   map[string]string
		names []string
		allow bool
	}{
		"switched off":  {map[string]string{"auto.create.topics.enable": "false"}, []string{"t"}, true},
		"not allowed":   {nil, []string{"t"}, false},
		"illegal names": {nil, []string{"a/b", "..", ""}, true},
		"not served":    {nil, []string{"__share_group_state"}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := newMetaNode(t, tt.set)
			req := metadataReq(13, tt.names...)
			req.AllowAutoTopicCreation = tt.allow
			n.ask(t, req)
			if got := n.controller.Image().NumTopics(); got != 0 {
				t.Errorf("%d topics, want none", got)
			}
		})
	}
}

func TestOffsetsTopicHasTheCoordinatorsSettings(t *testing.T) {
	n := newMetaNode(t, nil)
	o := NewOffsetsTopic(n.controller, n.controller, n.config)
	for range 2 {
		if err := o.EnsureOffsetsTopic(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	topic, ok := n.controller.Image().Topic(image.OffsetsTopic)
	if !ok || len(topic.Partitions) != 50 || len(topic.Partitions[0].Replicas) != 1 {
		t.Fatalf("topic = %+v, want 50 partitions with one replica", topic)
	}
	got := n.controller.Image().Config(image.ResourceTopic, image.OffsetsTopic)
	want := map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("configs (-want +got):\n%s", d)
	}
}

func TestTxnTopicHasTheCoordinatorsSettings(t *testing.T) {
	n := newMetaNode(t, nil)
	if err := NewTxnTopic(n.controller, n.controller, n.config).Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	topic, ok := n.controller.Image().Topic(image.TxnStateTopic)
	if !ok || len(topic.Partitions) != 50 || len(topic.Partitions[0].Replicas) != 1 {
		t.Fatalf("topic = %+v, want 50 partitions with one replica", topic)
	}
	got := n.controller.Image().Config(image.ResourceTopic, image.TxnStateTopic)
	want := map[string]string{"cleanup.policy": "compact", "compression.type": "uncompressed", "segment.bytes": "104857600",
		"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("configs (-want +got):\n%s", d)
	}
}

func TestInitProducerID(t *testing.T) {
	n := newMetaNode(t, nil)
	for want := range int64(3) {
		got := n.ask(t, latest(kmsg.NewPtrInitProducerIDRequest())).(*kmsg.InitProducerIDResponse)
		if got.ErrorCode != 0 || got.ProducerID != want || got.ProducerEpoch != 0 {
			t.Errorf("answer %+v, want id %d epoch 0", got, want)
		}
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = kmsg.StringPtr("")
	if got := n.ask(t, latest(req)).(*kmsg.InitProducerIDResponse); got.ErrorCode != 42 || got.ProducerID != -1 || got.ProducerEpoch != -1 {
		t.Errorf("empty transactional id: %+v, want 42 and no id", got)
	}
}

func TestAlteredConfigsAreDescribed(t *testing.T) {
	n := newMetaNode(t, nil)
	n.ask(t, createReq(false, topicReq("t", 1, 1, "retention.ms", "1000")))
	req := incrementalReq(kmsg.ConfigResourceTypeTopic, "t", change{"cleanup.policy", 2, "compact"}, change{"retention.ms", 1, "NULL"})
	req.(*kmsg.IncrementalAlterConfigsRequest).ValidateOnly = false
	if got := n.ask(t, req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		t.Fatalf("alter: %+v", got)
	}
	resp := n.ask(t, describeReq(kmsg.ConfigResourceTypeTopic, "t", false, "cleanup.policy", "retention.ms")).(*kmsg.DescribeConfigsResponse)
	got := map[string]string{}
	for _, c := range resp.Resources[0].Configs {
		got[c.Name] = fmt.Sprintf("%s from %d", *c.Value, c.Source)
	}
	want := map[string]string{"cleanup.policy": "delete,compact from 1", "retention.ms": "604800000 from 5"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	legacy := alterReq("t").(*kmsg.AlterConfigsRequest)
	legacy.ValidateOnly = false
	n.ask(t, legacy)
	if got := n.controller.Image().Config(image.ResourceTopic, "t"); fmt.Sprint(got) != "map[segment.ms:100]" {
		t.Errorf("after the legacy request the topic has %v, want segment.ms alone", got)
	}
}

// oneLogger is a root logger.
type oneLogger struct{ level *string }

func (oneLogger) Names() []string                    { return []string{rootLogger} }
func (l oneLogger) Level(name string) (string, bool) { return *l.level, name == rootLogger }
func (l oneLogger) SetLevel(_, level string)         { *l.level = level }
