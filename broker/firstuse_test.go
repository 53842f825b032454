package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/vfs/memfs"
)

// The first group and the first transaction of a new node meet no error that a client would have to try again for: the internal
// topics, with their 50 partitions, are there with the answer. Kafka says COORDINATOR_NOT_AVAILABLE and NOT_COORDINATOR for a
// while.
func TestFirstUseShowsNoError(t *testing.T) {
	for name, kind := range map[string]int8{"group": 0, "transaction": 1} {
		t.Run(name, func(t *testing.T) {
			n := start(t, memfs.New(time.Now), nil)
			c := n.dial()
			began := time.Now()
			find := kmsg.NewPtrFindCoordinatorRequest()
			find.Version, find.CoordinatorType, find.CoordinatorKeys = 6, kind, []string{"first"}
			if got := c.ask(find).(*kmsg.FindCoordinatorResponse).Coordinators[0]; got.ErrorCode != 0 || got.NodeID != 1 {
				t.Fatalf("find coordinator: %v", kerr.ErrorForCode(got.ErrorCode))
			}
			if kind == 0 {
				firstGroup(t, c)
			} else {
				init := kmsg.NewPtrInitProducerIDRequest()
				init.Version, init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = 5, new("first"), 60_000, -1, -1
				if got := c.ask(init).(*kmsg.InitProducerIDResponse); got.ErrorCode != 0 {
					t.Fatalf("init producer id: %v", kerr.ErrorForCode(got.ErrorCode))
				}
			}
			t.Logf("the first %s took %v", name, time.Since(began))
		})
	}
}

func firstGroup(t *testing.T, c *client) {
	t.Helper()
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version, fetch.Groups = 9, []kmsg.OffsetFetchRequestGroup{{Group: "first", MemberEpoch: -1}}
	if got := c.ask(fetch).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode; got != 0 {
		t.Errorf("offset fetch: %v", kerr.ErrorForCode(got))
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Version, join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = 9, "first", 10_000, 10_000, "consumer"
	join.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{}}}
	got := c.ask(join).(*kmsg.JoinGroupResponse)
	if got.ErrorCode != kerr.MemberIDRequired.Code {
		t.Fatalf("join: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	join.MemberID = got.MemberID
	if got = c.ask(join).(*kmsg.JoinGroupResponse); got.ErrorCode != 0 || got.LeaderID != join.MemberID {
		t.Fatalf("join again: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.Generation, sync.MemberID, sync.ProtocolType, sync.Protocol = 5, "first", got.Generation, join.MemberID, new("consumer"), new("range")
	if got := c.ask(sync).(*kmsg.SyncGroupResponse).ErrorCode; got != 0 {
		t.Errorf("sync: %v", kerr.ErrorForCode(got))
	}
}

// An admin change that was answered is what the next request sees, on any connection.
func TestReadYourWrites(t *testing.T) {
	n := start(t, memfs.New(time.Now), nil)
	writer, reader := n.dial(), n.dial()
	metadata := func(topic string) kmsg.MetadataResponseTopic {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 13, []kmsg.MetadataRequestTopic{{Topic: &topic}}
		return reader.ask(req).(*kmsg.MetadataResponse).Topics[0]
	}
	config := func(topic string) string {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Version = 4
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic, ConfigNames: []string{"retention.ms"}}}
		got := reader.ask(req).(*kmsg.DescribeConfigsResponse).Resources[0]
		if got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		return *got.Configs[0].Value
	}
	for i := range 50 {
		topic := fmt.Sprintf("t%d", i)
		create := kmsg.NewPtrCreateTopicsRequest()
		create.Version, create.TimeoutMillis = 7, 10_000
		create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}}
		if got := writer.ask(create).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		if got := metadata(topic); got.ErrorCode != 0 || len(got.Partitions) != 1 || got.Partitions[0].Leader != 1 {
			t.Fatalf("created and not seen: %+v", got)
		}
		grow := kmsg.NewPtrCreatePartitionsRequest()
		grow.Version, grow.TimeoutMillis, grow.Topics = 3, 10_000, []kmsg.CreatePartitionsRequestTopic{{Topic: topic, Count: 3}}
		writer.ask(grow)
		if got := metadata(topic); len(got.Partitions) != 3 {
			t.Fatalf("grown and not seen: %+v", got)
		}
		value := fmt.Sprint(1_000_000 + i)
		if code, text := writer.alter(kmsg.ConfigResourceTypeTopic, topic, "retention.ms", &value); code != 0 {
			t.Fatal(text)
		}
		if got := config(topic); got != value {
			t.Fatalf("altered to %s, and it is %s", value, got)
		}
		drop := kmsg.NewPtrDeleteTopicsRequest()
		drop.Version, drop.TimeoutMillis, drop.Topics = 6, 10_000, []kmsg.DeleteTopicsRequestTopic{{Topic: &topic}}
		writer.ask(drop)
		if got := metadata(topic); got.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Fatalf("deleted and still seen: %+v", got)
		}
	}
}
