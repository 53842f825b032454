package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Produce refuses before it looks at the records, and in which order.
func TestProduceRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		few := log.DefaultConfig()
		few.MinInSyncReplicas = 2
		k.config["few"] = few
		k.topic("t", 1)
		k.topic("else", 1, 2, 1)
		k.topic("few", 1, 1, 2)
		k.topic("__consumer_offsets", 1)
		k.apply(shrinkISR("few", 1))
		k.topic("none", 1, 2, 1)
		k.apply(electLeader("none", wire.NoBroker))
		good := values(1, 1)
		bad := slices.Clone(good)
		bad[len(bad)-1] ^= 1
		for _, tt := range []struct {
			name   string
			topic  string
			p      int32
			acks   int16
			data   []byte
			client string
			code   int16
			leader int32
		}{
			{"unknown partition before a bad batch", "t", 5, 1, bad, "c", 3, -1},
			{"shape before acks", "t", 0, 5, good[:40], "c", 87, -1},
			{"acks before internal topic", "__consumer_offsets", 0, 5, good, "c", 21, -1},
			{"internal topic", "__consumer_offsets", 0, 1, good, "c", 17, -1},
			{"internal topic as the admin client", "__consumer_offsets", 0, 1, good, adminClientID, 0, -1},
			{"leadership before the records", "else", 0, 1, bad, "c", 6, 2},
			{"no leader to hint at", "none", 0, 1, bad, "c", 6, -1},
			{"min ISR before the records", "few", 0, -1, bad, "c", 19, -1},
			{"min ISR is not asked with acks=1", "few", 0, 1, good, "c", 0, -1},
			{"records", "t", 0, 1, bad, "c", 2, -1},
		} {
			msg := produceRequest(tt.acks, produced{tt.topic, tt.p, slices.Clone(tt.data)})
			msg.Version = 11
			r := k.send(k.produceHandler(), msg, tt.client)
			<-r.done
			resp := decode[*kmsg.ProduceResponse](k, r, 11)
			p := resp.Topics[0].Partitions[0]
			if p.ErrorCode != tt.code || p.CurrentLeader.LeaderID != tt.leader {
				t.Errorf("%s: error %d, leader %d", tt.name, p.ErrorCode, p.CurrentLeader.LeaderID)
			}
			if tt.leader == -1 && p.CurrentLeader.LeaderEpoch != -1 { // a hint of "no leader" is one, too
				t.Errorf("%s: hints at epoch %d", tt.name, p.CurrentLeader.LeaderEpoch)
			}
			if tt.leader == 2 && (len(resp.Brokers) != 1 || resp.Brokers[0].Host != "host" || resp.Brokers[0].Port != 9002) {
				t.Errorf("%s: endpoints %+v", tt.name, resp.Brokers)
			}
		}
	})
}

// A transactional batch refuses the whole request with 53, and with acks=0 closes.
func TestProduceTransactional(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("t", 2)
		txn := values(1, 1, byProducer(1, 0, 0), func(s *batch.Spec) { s.Transactional = true })
		resp := ask[*kmsg.ProduceResponse](k, k.produceHandler(), produceRequest(-1, produced{"t", 0, values(1, 1)}, produced{"t", 1, txn}), 11)
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 53 {
				t.Errorf("partition %d: error %d", p.Partition, p.ErrorCode)
			}
		}
		msg := produceRequest(0, produced{"t", 1, txn})
		msg.Version = 11
		if r := k.send(k.produceHandler(), msg, "c"); !r.drops || r.drop == nil {
			t.Error("acks=0 with a transactional batch did not close")
		}
		if p, _ := k.m.ByName("t", 0); p.Offsets().LEO != 0 {
			t.Error("something was stored")
		}
	})
}

// v13 names topics by id, in requests and answers.
func TestProduceByTopicID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("t", 1)
		resp := ask[*kmsg.ProduceResponse](k, k.produceHandler(), produceRequest(-1, produced{"t", 0, values(1, 3)}, produced{"gone", 0, values(1, 1)}), 13)
		if a, b := resp.Topics[0], resp.Topics[1]; a.TopicID != kitTopicID("t") || a.Partitions[0].ErrorCode != 0 || b.TopicID != kitTopicID("gone") || b.Partitions[0].ErrorCode != 100 {
			t.Fatalf("%+v", resp.Topics)
		}
	})
}

// A disk that fails to sync answers 56 to the produce that met it and to those after it; what is below the high watermark
// is read on. A disk that fails to read answers 56 to fetches, below v6 as 6.
func TestStorageErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		k.close()
		fs := faultfs.New(memfs.New(time.Now))
		k.fs = fs
		k.open()
		k.topic("t", 1)
		k.mustProduce("t", 0, values(1, 1))
		fs.Add(faultfs.Rule{Op: faultfs.OpSync, Path: "*.log", Err: syscall.EIO})
		for i := range 2 {
			if p := k.produce(11, "t", 0, values(1, 1)); p.ErrorCode != 56 {
				t.Fatalf("produce %d after the failure: error %d", i, p.ErrorCode)
			}
		}
		fetch := func(version int16) kmsg.FetchResponseTopicPartition {
			return ask[*kmsg.FetchResponse](k, k.fetch.handle, fetchOf(1000, 1, 1<<20, fetchTopic("t", fetchPart(0, 0, 1<<20))), version).Topics[0].Partitions[0]
		}
		if p := fetch(12); p.ErrorCode != 0 || p.HighWatermark != 1 || len(p.RecordBatches) == 0 {
			t.Errorf("fetch after a failed sync: error %d, high watermark %d, %d bytes", p.ErrorCode, p.HighWatermark, len(p.RecordBatches))
		}
		fs.Add(faultfs.Rule{Op: faultfs.OpRead, Path: "*.log", Err: syscall.EIO})
		for version, code := range map[int16]int16{4: 6, 5: 6, 6: 56, 12: 56} {
			if p := fetch(version); p.ErrorCode != code {
				t.Errorf("fetch v%d: error %d", version, p.ErrorCode)
			}
		}
		msg := kmsg.NewPtrDescribeLogDirsRequest()
		if resp := ask[*kmsg.DescribeLogDirsResponse](k, (&describeLogDirs{k, k, 1}).handle, msg, 4); resp.Dirs[0].ErrorCode != 56 {
			t.Errorf("log directory: error %d", resp.Dirs[0].ErrorCode)
		}
		if err := k.m.Close(t.Context()); err == nil {
			t.Error("close of a failed directory reported nothing")
		}
	})
}

// A session with topic ids keeps an id that is not known yet and serves it once it is. Of an id that it has known it says that the
// topic is gone, and then that it is another one: 3 and 103. Outside of a session the old id is 100.
func TestFetchSessionByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("a", 1)
		first := fetchOf(0, 1, 1<<20, fetchTopic("a", fetchPart(0, 0, 1<<20)), fetchTopic("late", fetchPart(0, 0, 1<<20)))
		first.SessionEpoch = 0
		resp := ask[*kmsg.FetchResponse](k, k.fetch.handle, first, 13)
		show := func(r *kmsg.FetchResponse) string {
			var out []string
			for _, topic := range r.Topics {
				for _, name := range []string{"a", "late"} {
					if topic.TopicID == kitTopicID(name) {
						for _, p := range topic.Partitions {
							out = append(out, fmt.Sprintf("%s:%d:%d", name, p.ErrorCode, len(baseOffsets(t, p.RecordBatches))))
						}
					}
				}
			}
			return strings.Join(out, " ")
		}
		if got := show(resp); got != "a:0:0 late:100:0" || resp.SessionID == 0 {
			t.Fatalf("first answer: %s", got)
		}
		epoch := int32(0)
		next := func() string {
			t.Helper()
			epoch++
			m := fetchOf(0, 1, 1<<20)
			m.SessionID, m.SessionEpoch = resp.SessionID, epoch
			return show(ask[*kmsg.FetchResponse](k, k.fetch.handle, m, 13))
		}
		if got := next(); got != "late:100:0" {
			t.Fatalf("an error is told each time: %s", got)
		}
		k.topic("late", 1)
		k.mustProduce("late", 0, values(1, 1))
		if got := next(); got != "late:0:1" {
			t.Fatalf("once it exists: %s", got)
		}
		k.apply(removeTopicRecord("late"))
		if got := next(); got != "late:3:0" {
			t.Fatalf("once it is gone: %s", got)
		}
		again := wire.UUID{9}
		k.apply(&coordrec.TopicRecord{Name: "late", TopicID: again}, &coordrec.PartitionRecord{TopicID: again,
			Replicas: []wire.BrokerID{1}, ISR: []wire.BrokerID{1}, Leader: 1, Directories: make([]wire.UUID, 1)})
		if got := next(); got != "late:103:0" {
			t.Fatalf("once it is another one: %s", got)
		}
		outside := fetchOf(0, 1, 1<<20, fetchTopic("late", fetchPart(0, 0, 1<<20)))
		outside.SessionEpoch = -1
		if got := show(ask[*kmsg.FetchResponse](k, k.fetch.handle, outside, 13)); got != "late:100:0" {
			t.Fatalf("outside of the session: %s", got)
		}
		m := fetchOf(0, 1, 1<<20)
		m.SessionID, m.SessionEpoch = resp.SessionID, epoch+1
		if got := ask[*kmsg.FetchResponse](k, k.fetch.handle, m, 12); got.ErrorCode != 106 || len(got.Topics) != 0 {
			t.Fatalf("names in a session of ids: error %d", got.ErrorCode)
		}
		m.SessionID = 4711
		if got := ask[*kmsg.FetchResponse](k, k.fetch.handle, m, 13); got.ErrorCode != 70 {
			t.Fatalf("unknown session: error %d", got.ErrorCode)
		}
	})
}

// A fetch that claims to be a broker closes the connection.
func TestFetchAsReplicaIsRefused(t *testing.T) {
	k := newDataKit(t)
	defer k.close()
	k.topic("t", 1)
	for _, version := range []int16{4, 12, 15, 18} {
		m := fetchOf(0, 1, 1<<20, fetchTopic("t", fetchPart(0, 0, 1)))
		m.Version = version
		if version >= 15 {
			m.ReplicaState.ID = 2
		} else {
			m.ReplicaID = 2
		}
		if r := k.send(k.fetch.handle, m, "c"); !r.drops || !errors.Is(r.drop, errFollowerFetch) {
			t.Errorf("v%d: dropped %v, %v", version, r.drops, r.drop)
		}
	}
}

// ListOffsets and OffsetForLeaderEpoch: the special values by version, epochs, isolation, and what a lagging new leader
// must not tell (KIP-207).
func TestOffsetQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("t", 1)
		k.topic("lag", 1, 1, 2)
		base := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
		for range 3 {
			k.mustProduce("t", 0, values(1, 4)) // timestamps base to base+3, offsets 0 to 11
		}
		part, _ := k.m.ByName("lag", 0)
		v, err := log.Validate(values(1, 5), log.ValidateOptions{Config: part.Config(), Now: time.Now(), ProduceVersion: 11, Codecs: k.codecs})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.AppendAsLeader(v, wire.NoLeaderEpoch, 1); err != nil {
			t.Fatal(err)
		}
		k.apply(electLeader("lag", 1)) // a new epoch that begins at 5 with the high watermark at 0
		for _, tt := range []struct {
			topic   string
			stamp   int64
			version int16
			replica int32
			epoch   int32
			want    string // code timestamp-base offset epoch
		}{
			{"t", -1, 11, -1, -1, "0 -1 12 0"},
			{"t", -1, 11, -2, 0, "0 -1 12 0"},
			{"t", -2, 11, -1, -1, "0 -1 0 0"},
			{"t", -3, 11, -1, -1, "0 3 3 0"},
			{"t", -3, 6, -1, -1, "35 -1 -1 -1"},
			{"t", -4, 8, -1, -1, "0 -1 0 0"},
			{"t", -4, 7, -1, -1, "35 -1 -1 -1"},
			{"t", -5, 9, -1, -1, "0 -1 -1 -1"},
			{"t", -5, 8, -1, -1, "35 -1 -1 -1"},
			{"t", -6, 11, -1, -1, "0 -1 -1 -1"},
			{"t", -7, 11, -1, -1, "35 -1 -1 -1"},
			{"t", base, 11, -1, -1, "0 0 0 0"},
			{"t", base + 2, 1, -1, -1, "0 2 2 -1"},
			{"t", base + 4, 11, -1, -1, "0 -1 -1 -1"},
			{"t", -1, 11, -1, 1, "75 -1 -1 -1"},
			{"t", -1, 11, 3, -1, "31 -1 -1 -1"},
			{"nope", -1, 11, -1, -1, "3 -1 -1 -1"},
			{"lag", -1, 11, -1, -1, "78 -1 -1 -1"},
			{"lag", -1, 4, -1, -1, "5 -1 -1 -1"},
			{"lag", -1, 11, -1, 0, "74 -1 -1 -1"},
			{"lag", -1, 11, -2, 1, "0 -1 5 1"},
			{"lag", base, 11, -1, -1, "78 -1 -1 -1"},
			{"lag", -2, 11, -1, -1, "0 -1 0 0"},
		} {
			m := kmsg.NewPtrListOffsetsRequest()
			m.ReplicaID = tt.replica
			lt := kmsg.NewListOffsetsRequestTopic()
			lp := kmsg.NewListOffsetsRequestTopicPartition()
			lt.Topic, lp.Timestamp, lp.CurrentLeaderEpoch = tt.topic, tt.stamp, tt.epoch
			lt.Partitions = append(lt.Partitions, lp)
			m.Topics = append(m.Topics, lt)
			p := ask[*kmsg.ListOffsetsResponse](k, (&listOffsets{images: k, parts: k}).handle, m, tt.version).Topics[0].Partitions[0]
			stamp := p.Timestamp
			if stamp >= 0 {
				stamp -= base
			}
			if got := fmt.Sprint(p.ErrorCode, stamp, p.Offset, p.LeaderEpoch); got != tt.want {
				t.Errorf("%s at %d v%d replica %d epoch %d: %s, want %s", tt.topic, tt.stamp, tt.version, tt.replica, tt.epoch, got, tt.want)
			}
		}
		for _, tt := range []struct {
			topic          string
			current, epoch int32
			want           string
		}{
			{"t", -1, 0, "0 0 12"}, {"t", -1, 7, "0 -1 -1"}, {"t", 3, 0, "75 -1 -1"}, {"nope", -1, 0, "3 -1 -1"},
			{"lag", -1, 0, "0 0 5"}, {"lag", 1, 1, "0 1 5"}, {"lag", 0, 0, "74 -1 -1"},
		} {
			m := kmsg.NewPtrOffsetForLeaderEpochRequest()
			m.ReplicaID = -2
			lt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			lp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			lt.Topic, lp.CurrentLeaderEpoch, lp.LeaderEpoch = tt.topic, tt.current, tt.epoch
			lt.Partitions = append(lt.Partitions, lp)
			m.Topics = append(m.Topics, lt)
			p := ask[*kmsg.OffsetForLeaderEpochResponse](k, (&offsetForLeaderEpoch{k, k}).handle, m, 4).Topics[0].Partitions[0]
			if got := fmt.Sprint(p.ErrorCode, p.LeaderEpoch, p.EndOffset); got != tt.want {
				t.Errorf("%s epoch %d under %d: %s, want %s", tt.topic, tt.epoch, tt.current, got, tt.want)
			}
		}
		twice := kmsg.NewPtrListOffsetsRequest()
		twice.ReplicaID = -1
		lt := kmsg.NewListOffsetsRequestTopic()
		lt.Topic = "t"
		lt.Partitions = make([]kmsg.ListOffsetsRequestTopicPartition, 2)
		twice.Topics = append(twice.Topics, lt)
		for _, p := range ask[*kmsg.ListOffsetsResponse](k, (&listOffsets{images: k, parts: k}).handle, twice, 5).Topics[0].Partitions {
			if p.ErrorCode != 42 {
				t.Errorf("a partition named twice: error %d", p.ErrorCode)
			}
		}
	})
}

// A tool that compares replicas fetches as replica -2: from followers, too, but like any consumer only up to the high watermark.
func TestFetchAsATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		defer k.close()
		k.topic("lag", 1, 1, 2)
		k.apply(shrinkISR("lag", 1))
		k.mustProduce("lag", 0, values(1, 5))
		k.topic("behind", 1, 1, 2)
		part, _ := k.m.ByName("behind", 0)
		v, err := log.Validate(values(1, 5), log.ValidateOptions{Config: part.Config(), Now: time.Now(), ProduceVersion: 11, Codecs: k.codecs})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.AppendAsLeader(v, wire.NoLeaderEpoch, 1); err != nil {
			t.Fatal(err)
		}
		fetch := func(topic string, version int16, replica, epoch int32, offset int64) string {
			f := fetchPart(0, offset, 1<<20)
			f.CurrentLeaderEpoch = epoch
			m := fetchOf(0, 0, 1<<20, fetchTopic(topic, f))
			m.ReplicaID, m.ReplicaState.ID = replica, replica
			p := ask[*kmsg.FetchResponse](k, k.fetch.handle, m, version).Topics[0].Partitions[0]
			return fmt.Sprint(p.ErrorCode, p.HighWatermark, len(p.RecordBatches) > 0)
		}
		for _, tt := range []struct {
			topic          string
			leader         wire.BrokerID
			version        int16
			replica, epoch int32
			offset         int64
			want           string // code, high watermark, whether there are records
		}{
			{"lag", 1, 18, -1, -1, 0, "0 5 true"},
			{"lag", 1, 18, -2, -1, 0, "0 5 true"},
			{"lag", 1, 18, -2, -1, 6, "1 -1 false"},
			{"behind", 1, 18, -1, -1, 0, "0 0 false"},
			{"behind", 1, 18, -2, -1, 0, "0 0 false"},
			{"behind", 1, 10, -2, -1, 0, "0 0 false"},
			{"lag", 2, 18, -1, -1, 0, "6 -1 false"},
			{"lag", 2, 18, -2, -1, 0, "0 5 true"},
			{"lag", 2, 11, -2, -1, 0, "0 5 true"},
			{"lag", 2, 10, -2, -1, 0, "6 -1 false"},
			{"lag", 2, 18, -2, 0, 0, "74 -1 false"},
			{"lag", 2, 18, -2, 9, 0, "75 -1 false"},
			{"behind", 2, 18, -2, -1, 0, "0 0 false"},
		} {
			if now, _ := k.Image().Partition(tt.topic, 0); now.Leader != tt.leader {
				k.apply(electLeader(tt.topic, tt.leader))
			}
			if got := fetch(tt.topic, tt.version, tt.replica, tt.epoch, tt.offset); got != tt.want {
				t.Errorf("%s v%d replica %d epoch %d offset %d, leader %d: %s, want %s", tt.topic, tt.version, tt.replica, tt.epoch, tt.offset, tt.leader, got, tt.want)
			}
		}
	})
}

// D7: a full disk refuses with 56 and nothing more: what was there is readable, and when there is room again the log goes
// on without a gap.
func TestDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newDataKit(t)
		k.close()
		fs := faultfs.New(memfs.New(time.Now))
		k.fs = fs
		k.open()
		k.topic("t", 1)
		k.mustProduce("t", 0, values(100, 1))
		fs.SetSpace(50)
		for range 3 {
			if p := k.produce(11, "t", 0, values(100, 1)); p.ErrorCode != 56 {
				t.Fatalf("produce on a full disk: error %d", p.ErrorCode)
			}
		}
		if p := ask[*kmsg.FetchResponse](k, k.fetch.handle, fetchOf(0, 1, 1<<20, fetchTopic("t", fetchPart(0, 0, 1<<20))), 12).Topics[0].Partitions[0]; len(baseOffsets(t, p.RecordBatches)) != 1 {
			t.Fatalf("fetch on a full disk: error %d, %d bytes", p.ErrorCode, len(p.RecordBatches))
		}
		fs.SetSpace(-1)
		if p := k.produce(11, "t", 0, values(100, 1)); p.ErrorCode != 0 || p.BaseOffset != 1 {
			t.Fatalf("produce after space was freed: error %d at %d", p.ErrorCode, p.BaseOffset)
		}
		k.close()
	})
}
