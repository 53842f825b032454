package broker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// node is a whole broker on a disk in memory, listening on a loopback port of its own.
type node struct {
	*Broker
	t    *testing.T
	addr string
}

func testConfig(t *testing.T, set map[string]string) *config.Config {
	t.Helper()
	c := config.Default("/data")
	all := map[string]string{"listeners": "PLAINTEXT://127.0.0.1:0", "kaja.http.listener": "", "group.initial.rebalance.delay.ms": "0"}
	for k, v := range set {
		all[k] = v
	}
	for k, v := range all {
		var err error
		if c, err = c.With(k, v); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// start starts a node and ends it with the test.
func start(t *testing.T, fs vfs.FS, set map[string]string) *node {
	t.Helper()
	env := OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed = fs, 1
	return startIn(t, env, set)
}

// newIn is a node on fs that is not started; the test starts it, and it is closed with the test.
func newIn(t *testing.T, fs vfs.FS, set map[string]string) *Broker {
	t.Helper()
	env := OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed = fs, 1
	b, err := New(env, testConfig(t, set))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close(context.Background()) })
	return b
}

// startIn is start in a world of the test's own.
func startIn(t *testing.T, env Env, set map[string]string) *node {
	t.Helper()
	reg := prometheus.NewRegistry()
	env.Registerer, env.Gatherer = reg, reg
	b, err := New(env, testConfig(t, set))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Broker: b, t: t}
	if err := b.Start(t.Context()); err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	n.addr = b.server.Addr("PLAINTEXT").String()
	return n
}

// client is one connection that sends one request after the other.
type client struct {
	t    *testing.T
	conn net.Conn
	corr int32
}

func (n *node) dial() *client {
	n.t.Helper()
	conn, err := net.Dial("tcp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return &client{t: n.t, conn: conn}
}

// ask sends req and decodes the answer; the whole frame must be used up by it.
func (c *client) ask(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.corr++
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, c.corr)
	if err := c.conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(frame); err != nil {
		c.t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		c.t.Fatalf("%s v%d: no answer: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.conn, body); err != nil {
		c.t.Fatal(err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != c.corr {
		c.t.Fatalf("correlation id %d, want %d", got, c.corr)
	}
	resp := req.ResponseKind()
	head := wire.AppendResponseHeader(nil, req.Key(), req.GetVersion(), c.corr)
	if !bytes.HasPrefix(body, head) {
		c.t.Fatalf("%s v%d: header % x, want % x", kmsg.NameForKey(req.Key()), req.GetVersion(), body[:len(head)], head)
	}
	body = body[len(head):]
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatalf("%s v%d: answer does not decode: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	// kmsg writes what it has read: an answer with bytes too many, or fields of another version, differs.
	if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
		c.t.Fatalf("%s v%d: answer is not of its version:\n% x\n% x", kmsg.NameForKey(req.Key()), req.GetVersion(), body, again)
	}
	return resp
}

// TestEveryVersionAnswers asks every API in the table at every version that it advertises, of a node that holds a topic
// and a group, and wants a well-formed answer of exactly that version with the error code that the request earns.
func TestEveryVersionAnswers(t *testing.T) {
	n := start(t, memfs.New(time.Now), nil)
	c := n.dial()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version, create.TimeoutMillis = 7, 10_000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
	if got := c.ask(create).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; got != 0 {
		t.Fatal(kerr.ErrorForCode(got))
	}
	topic, _ := n.Image().Topic("t")
	c.ask(sample(10, 0, topic.ID)) // the first use of groups creates their topic
	find := sample(10, 1, topic.ID).(*kmsg.FindCoordinatorRequest)
	find.CoordinatorType = 1
	c.ask(find) // and that of transactions theirs
	asked := 0
	routes := n.routes.Routes(server.NewConn(1, "PLAINTEXT", nil, nil))
	slices.SortFunc(routes, func(a, b server.Route) int { return cmp.Compare(a.Key, b.Key) })
	for _, route := range routes {
		lowest := max(route.Min, route.FirstServed)
		for v := lowest; v <= route.Max; v++ {
			req := sample(route.Key, v, topic.ID)
			if req == nil {
				t.Fatalf("%s: add a sample of it to this test", kmsg.NameForKey(route.Key))
			}
			t.Run(fmt.Sprintf("%s v%d", kmsg.NameForKey(route.Key), v), func(t *testing.T) {
				c.t = t
				want := wantCode(route.Key, v)
				codes := errorCodes(c.ask(req))
				for _, got := range codes {
					if got != 0 && got != want {
						t.Errorf("error %v, want %v", kerr.ErrorForCode(got), kerr.ErrorForCode(want))
					}
				}
				if want != 0 && !slices.Contains(codes, want) {
					t.Errorf("errors %v, want %v", codes, kerr.ErrorForCode(want))
				}
			})
			asked++
		}
	}
	if want := servedVersions(routes); asked != want {
		t.Errorf("asked %d versions, want %d", asked, want)
	}
}

func servedVersions(routes []server.Route) int {
	n := 0
	for _, r := range routes {
		n += int(r.Max-max(r.Min, r.FirstServed)) + 1
	}
	return n
}

// wantCode is the code that the sample of an API earns.
func wantCode(key, version int16) int16 {
	switch key {
	case 11: // JoinGroup: dynamic members are told their id first, since v4
		if version >= 4 {
			return kerr.MemberIDRequired.Code
		}
	case 12, 14: // Heartbeat, SyncGroup of a member that never joined
		return kerr.UnknownMemberID.Code
	case 13:
		return kerr.UnknownMemberID.Code
	case 15: // DescribeGroups of a group that does not exist
		if version >= 6 {
			return kerr.GroupIDNotFound.Code
		}
	case 42, 47:
		return kerr.GroupIDNotFound.Code
	case 19:
		return kerr.TopicAlreadyExists.Code
	case 24: // AddPartitionsToTxn of an id that was never initialised
		return kerr.InvalidProducerIDMapping.Code
	case 25, 26, 28:
		return kerr.InvalidProducerIDMapping.Code
	case 65:
		return kerr.TransactionalIDNotFound.Code
	case 34: // AlterReplicaLogDirs to a directory that the node does not have
		return kerr.LogDirNotFound.Code
	case 37:
		return kerr.InvalidPartitions.Code
	case 20:
		return kerr.UnknownTopicOrPartition.Code
	case 43:
		return kerr.ElectionNotNeeded.Code
	case 64:
		return kerr.BrokerIDNotRegistered.Code
	}
	return 0
}

func sample(key, version int16, id wire.UUID) kmsg.Request {
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		r.Acks, r.TimeoutMillis = -1, 10_000
		b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
		records, _, err := b.Build(nil, compress.New())
		if err != nil {
			panic(err)
		}
		r.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	case *kmsg.FetchRequest:
		r.ReplicaID, r.MaxBytes, r.SessionEpoch, r.MinBytes = -1, 1<<20, -1, 1
		p := kmsg.NewFetchRequestTopicPartition()
		p.PartitionMaxBytes = 1 << 20
		r.Topics = []kmsg.FetchRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	case *kmsg.ListOffsetsRequest:
		r.ReplicaID = -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -2
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	case *kmsg.MetadataRequest:
		name := "t"
		r.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	case *kmsg.OffsetCommitRequest:
		r.Group, r.Generation = "committed", -1
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset, p.LeaderEpoch = 1, -1
		r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	case *kmsg.OffsetFetchRequest:
		r.Group = "committed"
		r.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "committed"
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}
		r.Groups = []kmsg.OffsetFetchRequestGroup{g}
	case *kmsg.FindCoordinatorRequest:
		r.CoordinatorKey, r.CoordinatorKeys = "committed", []string{"committed"}
	case *kmsg.JoinGroupRequest:
		r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = fmt.Sprintf("join-%d", version), 10_000, 10_000, "consumer"
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{}}}
	case *kmsg.HeartbeatRequest:
		r.Group, r.MemberID = "nobody", "m"
	case *kmsg.LeaveGroupRequest:
		r.Group, r.MemberID = "nobody", "m"
		r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
	case *kmsg.SyncGroupRequest:
		kind, name := "consumer", "range"
		r.Group, r.MemberID, r.ProtocolType, r.Protocol = "nobody", "m", &kind, &name
	case *kmsg.DescribeGroupsRequest:
		r.Groups = []string{"nobody"}
	case *kmsg.ListGroupsRequest, *kmsg.DescribeClusterRequest, *kmsg.ListConfigResourcesRequest:
	case *kmsg.ApiVersionsRequest:
		r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1"
	case *kmsg.CreateTopicsRequest:
		r.TimeoutMillis = 10_000
		r.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
	case *kmsg.DeleteTopicsRequest:
		name := "absent"
		r.TimeoutMillis, r.TopicNames = 10_000, []string{name}
		r.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	case *kmsg.DeleteRecordsRequest:
		r.TimeoutMillis = 10_000
		r.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 0}}}}
	case *kmsg.InitProducerIDRequest:
		r.ProducerID, r.ProducerEpoch, r.TransactionTimeoutMillis = -1, -1, 1000
	case *kmsg.AddPartitionsToTxnRequest:
		r.TransactionalID, r.Topics = "nobody", []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		r.Transactions = []kmsg.AddPartitionsToTxnRequestTransaction{{TransactionalID: "nobody",
			Topics: []kmsg.AddPartitionsToTxnRequestTransactionTopic{{Topic: "t", Partitions: []int32{0}}}}}
	case *kmsg.AddOffsetsToTxnRequest:
		r.TransactionalID, r.Group = "nobody", "g"
	case *kmsg.EndTxnRequest:
		r.TransactionalID = "nobody"
	case *kmsg.WriteTxnMarkersRequest:
		r.Markers = []kmsg.WriteTxnMarkersRequestMarker{{ProducerID: 5, Committed: true,
			Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: []int32{0}}}}}
	case *kmsg.TxnOffsetCommitRequest:
		r.TransactionalID, r.Group, r.Generation = "nobody", "g", -1
		r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: 1}}}}
	case *kmsg.DescribeProducersRequest:
		r.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	case *kmsg.DescribeTransactionsRequest:
		r.TransactionalIDs = []string{"nobody"}
	case *kmsg.ListTransactionsRequest:
		r.DurationFilterMillis = -1
	case *kmsg.OffsetForLeaderEpochRequest:
		r.ReplicaID = -2
		r.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{CurrentLeaderEpoch: -1}}}}
	case *kmsg.DescribeConfigsRequest:
		r.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}
	case *kmsg.AlterConfigsRequest:
		r.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}
	case *kmsg.IncrementalAlterConfigsRequest:
		value := "3600000"
		r.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &value}}}}
	case *kmsg.ElectLeadersRequest:
		r.TimeoutMillis = 10_000
		r.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	case *kmsg.DescribeQuorumRequest:
		r.Topics = []kmsg.DescribeQuorumRequestTopic{{Topic: "__cluster_metadata", Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	case *kmsg.UpdateFeaturesRequest:
		r.TimeoutMillis = 10_000
		r.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "transaction.version", MaxVersionLevel: 2, UpgradeType: 1}}
	case *kmsg.UnregisterBrokerRequest:
		r.BrokerID = 99
	case *kmsg.AlterReplicaLogDirsRequest:
		r.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/nowhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{0}}}}}
	case *kmsg.DescribeLogDirsRequest:
	case *kmsg.CreatePartitionsRequest:
		r.TimeoutMillis = 10_000
		r.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 1}}
	case *kmsg.DeleteGroupsRequest:
		r.Groups = []string{"nobody"}
	case *kmsg.OffsetDeleteRequest:
		r.Group = "nobody"
		r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
	case *kmsg.DescribeTopicPartitionsRequest:
		r.ResponsePartitionLimit = 10
		r.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "t"}}
	default:
		return nil
	}
	return req
}

// errorCodes gives every error code of an answer, whatever its depth.
func errorCodes(resp kmsg.Response) []int16 {
	var codes []int16
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Type().Field(i); f.Name == "ErrorCode" {
					codes = append(codes, int16(v.Field(i).Int()))
				} else if f.IsExported() && f.Name != "UnknownTags" {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(resp))
	return codes
}
