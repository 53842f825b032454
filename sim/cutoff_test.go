package sim

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader that was cut off from the other nodes and replaced does not know what its successor has taken. It sends no consumer back
// that comes with a newer position, and names no end of an epoch that it does not know: either may be data of its successor. A
// leader that knows that it leads answers as Kafka's (R14, C17).
func TestCutOffLeaderSendsNobodyBack(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, "min.insync.replicas=2")
		replicated(t, c, "t", 1, nil)
		whole(t, c, "t", 30*time.Second)
		producer, err := c.Client("producer", kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err != nil {
			t.Fatal(err)
		}
		defer producer.Close()
		send := func(from, to int) *kgo.Record {
			var last *kgo.Record
			for i := from; i < to; i++ {
				r, err := producer.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Append(nil, i)}).First()
				if err != nil || r.Offset != int64(i) {
					t.Fatalf("record %d lies at %d: %v", i, r.Offset, err)
				}
				last = r
			}
			return last
		}
		send(0, 10)
		m := kmsg.NewPtrMetadataRequest()
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
		told := at(t, producer, 1, m).(*kmsg.MetadataResponse).Topics[0]
		id, topic, epoch := int(told.Partitions[0].Leader), told.TopicID, told.Partitions[0].LeaderEpoch
		old := nodes[id-1]
		asker, err := c.Client("asker", kgo.SeedBrokers(old.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer asker.Close()
		request := func(r kmsg.Request) kmsg.Response {
			resp, err := asker.SeedBrokers()[0].Request(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		ask := func(from int64, of int32) (fetch, end error) {
			f := kmsg.NewPtrFetchRequest()
			f.ReplicaID, f.MaxBytes, f.Topics = -1, 1<<20, []kmsg.FetchRequestTopic{{Topic: "t", TopicID: topic, Partitions: []kmsg.FetchRequestTopicPartition{
				{FetchOffset: from, CurrentLeaderEpoch: epoch, LastFetchedEpoch: -1, PartitionMaxBytes: 1 << 20}}}}
			e := kmsg.NewPtrOffsetForLeaderEpochRequest()
			e.ReplicaID, e.Topics = -1, []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{
				{CurrentLeaderEpoch: epoch, LeaderEpoch: of}}}}
			p := request(f).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			q := request(e).(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0]
			if q.ErrorCode == 0 && q.EndOffset != -1 {
				t.Errorf("epoch %d ends at %d", of, q.EndOffset)
			}
			return kerr.ErrorForCode(p.ErrorCode), kerr.ErrorForCode(q.ErrorCode)
		}
		if fetch, end := ask(50, epoch+1); !errors.Is(fetch, kerr.OffsetOutOfRange) || end != nil {
			t.Errorf("a leader that leads: %v, %v", fetch, end)
		}
		for _, n := range nodes {
			if n != old {
				c.Net.Cut(old.Name(), n.Name())
				c.Net.Cut(n.Name(), old.Name())
			}
		}
		last := send(10, 50)
		if fetch, end := ask(50, last.LeaderEpoch); !errors.Is(fetch, kerr.NotLeaderForPartition) || !errors.Is(end, kerr.NotLeaderForPartition) {
			t.Errorf("a leader that was replaced and does not know it: %v, %v", fetch, end)
		}
		if fetch, _ := ask(-1, last.LeaderEpoch); !errors.Is(fetch, kerr.OffsetOutOfRange) {
			t.Errorf("before the start of the log: %v", fetch)
		}
		consumer, err := c.Client("consumer", kgo.SeedBrokers(old.Addr()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().At(50).WithEpoch(last.LeaderEpoch)}}))
		if err != nil {
			t.Fatal(err)
		}
		defer consumer.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			time.Sleep(5 * time.Second)
			send(50, 51)
		}()
		first := int64(-1)
		if got := consumer.PollFetches(ctx).Records(); len(got) > 0 {
			first = got[0].Offset
		}
		if first != 50 {
			t.Errorf("a consumer at 50 that asks the node that was cut off gets the record at %d", first)
		}
	})
}
