package replica

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/kajamq/kaja/wire/coordrec"
)

// kit is a manager over an image that the test writes itself: node 1, no raft.
type kit struct {
	t      *testing.T
	fs     vfs.FS
	o      Options
	m      *Manager
	img    *image.Image
	pos    image.Position
	config map[string]*log.Config
	fsync  FSync
}

func newKit(t *testing.T, fs vfs.FS) *kit {
	k := &kit{t: t, fs: fs, img: image.Empty("kit"), config: map[string]*log.Config{}}
	k.o = Options{FS: fs, Dirs: []Dir{{Path: "data", ID: wire.UUID{9}}}, NodeID: 1, PreviousBrokerEpoch: wire.NoBrokerEpoch,
		BrokerEpoch: func() wire.BrokerEpoch { return 5 }, Logger: slog.New(slog.DiscardHandler), Codecs: compress.New(),
		TopicConfig: func(_ *image.Image, topic string) *log.Config {
			if c := k.config[topic]; c != nil {
				return c
			}
			return log.DefaultConfig()
		},
		FSync: func(*image.Image, string) FSync { return k.fsync },
	}
	return k
}

func (k *kit) open() {
	k.t.Helper()
	k.m = NewManager(k.o)
	if err := k.m.Open(k.t.Context(), k.img); err != nil {
		k.t.Fatal(err)
	}
}

func (k *kit) close() {
	k.t.Helper()
	if err := k.m.Close(context.Background()); err != nil {
		k.t.Fatal(err)
	}
}

// apply writes records to the image and, when open, gives the result to the manager.
func (k *kit) apply(records ...coordrec.MetadataRecord) {
	k.t.Helper()
	k.pos.Offset++
	img, delta, err := k.img.With(k.pos, records)
	if err != nil {
		k.t.Fatal(err)
	}
	k.img = img
	if k.m != nil {
		if err := k.m.Apply(k.t.Context(), delta, img); err != nil {
			k.t.Fatal(err)
		}
	}
}

func topicID(name string) wire.UUID {
	id := wire.UUID{0: 7}
	copy(id[1:], name)
	return id
}

func (k *kit) topic(name string, id wire.UUID, partitions int, replicas ...wire.BrokerID) {
	k.t.Helper()
	if len(replicas) == 0 {
		replicas = []wire.BrokerID{1}
	}
	records := []coordrec.MetadataRecord{&coordrec.TopicRecord{Name: name, TopicID: id}}
	for p := range partitions {
		records = append(records, &coordrec.PartitionRecord{PartitionID: wire.PartitionID(p), TopicID: id, Replicas: replicas, ISR: replicas,
			Leader: replicas[0], Directories: make([]wire.UUID, len(replicas))})
	}
	k.apply(records...)
}

func (k *kit) part(topic string, p wire.PartitionID) *Partition {
	k.t.Helper()
	part, ok := k.m.ByName(topic, p)
	if !ok {
		k.t.Fatalf("%s-%d is not here", topic, p)
	}
	return part
}

// records makes a batch of n records.
func records(n int, size int) []byte {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	for range n {
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: make([]byte, size)})
	}
	out, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err)
	}
	return out
}

// idempotent makes a batch of n records of a producer.
func idempotent(id wire.ProducerID, seq int32, n int) []byte {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Producer: &batch.Producer{ID: id, Sequence: seq}})
	for range n {
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
	}
	out, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err)
	}
	return out
}

func (k *kit) validate(p *Partition, data []byte) *log.Validated {
	k.t.Helper()
	v, err := log.Validate(data, log.ValidateOptions{Config: p.Config(), Now: time.Now(), ProduceVersion: 11, Codecs: k.o.Codecs})
	if err != nil {
		k.t.Fatal(err)
	}
	return v
}

func (k *kit) append(p *Partition, data []byte, acks int16) Appended {
	k.t.Helper()
	a, err := p.AppendAsLeader(k.validate(p, data), wire.NoLeaderEpoch, acks)
	if err != nil {
		k.t.Fatal(err)
	}
	return a
}

// readable is the number of bytes that a consumer gets from offset on.
func readable(t *testing.T, p *Partition, from wire.Offset) int64 {
	t.Helper()
	r, err := p.Read(ReadOptions{Offset: from, LeaderEpoch: wire.NoLeaderEpoch, LastFetchedEpoch: wire.NoLeaderEpoch, Max: 1 << 30, MinOne: true})
	if err != nil {
		t.Fatal(err)
	}
	wire.Release(r.Segments)
	return r.Size
}

// change elects leader for partition 0 of a topic.
func change(topic string, leader wire.BrokerID) coordrec.MetadataRecord {
	return &coordrec.PartitionChangeRecord{TopicID: topicID(topic), Leader: leader, LeaderRecoveryState: coordrec.NoRecoveryChange}
}

func remove(topic string) coordrec.MetadataRecord {
	return &coordrec.RemoveTopicRecord{TopicID: topicID(topic)}
}

// look1 is a look at the partition that reads nothing.
func (p *Partition) look1() purgatory.Mark {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mark
}
