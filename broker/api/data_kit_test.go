package api

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// dataKit is the data plane with its handlers over a real log, an image that the test writes, and no network: node 1.
type dataKit struct {
	t      testing.TB
	fs     vfs.FS
	dirs   []replica.Dir
	m      *replica.Manager
	img    atomic.Pointer[image.Image]
	pos    image.Position
	config map[string]*log.Config
	fsync  replica.FSync
	codecs *compress.Codecs
	conn   *server.Conn
	ids    int32
	fetch  *fetch
}

func newDataKit(t testing.TB) *dataKit {
	k := &dataKit{t: t, fs: memfs.New(time.Now), dirs: []replica.Dir{{Path: "/data", ID: wire.UUID{9}}}, config: map[string]*log.Config{}, codecs: compress.New(),
		conn: server.NewConn(1, "PLAINTEXT", nil, nil)}
	k.fetch = &fetch{images: k, parts: k, endpoints: k, maxBytes: 55 << 20, sessions: newFetchSessions(100, time.Now, func() int32 { k.ids++; return k.ids })}
	k.img.Store(image.Empty("kit"))
	k.open()
	return k
}

func (k *dataKit) open() {
	k.m = replica.NewManager(replica.Options{FS: k.fs, Dirs: k.dirs, NodeID: 1,
		PreviousBrokerEpoch: wire.NoBrokerEpoch, Logger: slog.New(slog.DiscardHandler), Codecs: k.codecs,
		TopicConfig: func(_ *image.Image, topic string) *log.Config {
			if c := k.config[topic]; c != nil {
				return c
			}
			return log.DefaultConfig()
		},
		FSync: func(*image.Image, string) replica.FSync { return k.fsync },
	})
	if err := k.m.Open(context.Background(), k.img.Load()); err != nil {
		k.t.Fatal(err)
	}
}

func (k *dataKit) close() {
	if err := k.m.Close(context.Background()); err != nil {
		k.t.Fatal(err)
	}
}

// The kit is what the handlers depend on.
func (k *dataKit) Image() *image.Image { return k.img.Load() }
func (k *dataKit) ByName(topic string, p wire.PartitionID) (*replica.Partition, bool) {
	return k.m.ByName(topic, p)
}
func (k *dataKit) Partition(id wire.UUID, p wire.PartitionID) (*replica.Partition, bool) {
	return k.m.Partition(id, p)
}
func (k *dataKit) Endpoint(_ *server.Conn, b wire.BrokerID) (string, int32, bool) {
	return "host", 9000 + int32(b), b < 10
}

func (k *dataKit) apply(records ...coordrec.MetadataRecord) {
	k.t.Helper()
	k.pos.Offset++
	img, delta, err := k.img.Load().With(k.pos, records)
	if err != nil {
		k.t.Fatal(err)
	}
	k.img.Store(img)
	if err := k.m.Apply(context.Background(), delta, img); err != nil {
		k.t.Fatal(err)
	}
}

func kitTopicID(name string) wire.UUID {
	sum := sha256.Sum256([]byte(name))
	return wire.UUID(sum[:16])
}

// topic makes a topic led by replicas[0], which is 1 unless given.
func (k *dataKit) topic(name string, partitions int, replicas ...wire.BrokerID) {
	k.t.Helper()
	if len(replicas) == 0 {
		replicas = []wire.BrokerID{1}
	}
	id := kitTopicID(name)
	records := []coordrec.MetadataRecord{&coordrec.TopicRecord{Name: name, TopicID: id}}
	for p := range partitions {
		records = append(records, &coordrec.PartitionRecord{PartitionID: wire.PartitionID(p), TopicID: id, Replicas: replicas, ISR: replicas,
			Leader: replicas[0], Directories: make([]wire.UUID, len(replicas))})
	}
	k.apply(records...)
}

// dataReply is what a handler answered.
type dataReply struct {
	done  chan struct{}
	resp  kmsg.Response
	build func() []wire.Segment
	drop  error
	drops bool
}

func (r *dataReply) Reply(resp kmsg.Response)              { r.resp = resp; close(r.done) }
func (r *dataReply) ReplyFunc(build func() []wire.Segment) { r.build = build; close(r.done) }
func (r *dataReply) Drop(err error)                        { r.drop, r.drops = err, true; close(r.done) }
func (r *dataReply) answered() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (k *dataKit) request(msg kmsg.Request, clientID string) *server.Request {
	return &server.Request{Key: msg.Key(), Version: msg.GetVersion(), ClientID: clientID, Msg: msg, Conn: k.conn, Received: time.Now()}
}

func (k *dataKit) send(h server.HandlerFunc, msg kmsg.Request, clientID string) *dataReply {
	r := &dataReply{done: make(chan struct{})}
	h(context.Background(), k.request(msg, clientID), r)
	return r
}

// ask sends msg through the wire's encoding and waits for the decoded answer.
func ask[R kmsg.Response](k *dataKit, h server.HandlerFunc, msg kmsg.Request, version int16) R {
	k.t.Helper()
	msg.SetVersion(version)
	in := kmsg.RequestForKey(msg.Key())
	in.SetVersion(version)
	if err := in.ReadFrom(msg.AppendTo(nil)); err != nil {
		k.t.Fatalf("request does not survive its encoding: %v", err)
	}
	r := k.send(h, in, "client")
	<-r.done
	if r.drops {
		k.t.Fatalf("no answer: %v", r.drop)
	}
	return decode[R](k, r, version)
}

func decode[R kmsg.Response](k *dataKit, r *dataReply, version int16) R {
	k.t.Helper()
	var body []byte
	if r.build != nil {
		body = flatten(k.t, r.build())
	} else {
		r.resp.SetVersion(version)
		body = r.resp.AppendTo(nil)
	}
	var zero R
	out := kmsg.ResponseForKey(zero.Key())
	out.SetVersion(version)
	if err := out.ReadFrom(body); err != nil {
		k.t.Fatalf("answer does not decode: %v", err)
	}
	return out.(R)
}

func flatten(t testing.TB, segs []wire.Segment) []byte {
	t.Helper()
	var out []byte
	for _, s := range segs {
		if s.File == nil {
			out = append(out, s.Bytes...)
			continue
		}
		b := make([]byte, s.Len)
		if n, err := s.File.ReadAt(b, s.Off); int64(n) != s.Len {
			t.Fatalf("read of %d bytes at %d: %d, %v", s.Len, s.Off, n, err)
		}
		out = append(out, b...)
	}
	wire.Release(segs)
	return out
}

func (k *dataKit) produceHandler() server.HandlerFunc {
	return (&produce{images: k, parts: k, endpoints: k, codecs: k.codecs, wall: time.Now}).handle
}

type produced struct {
	topic     string
	partition int32
	records   []byte
}

func produceRequest(acks int16, in ...produced) *kmsg.ProduceRequest {
	msg := kmsg.NewPtrProduceRequest()
	msg.Acks, msg.TimeoutMillis = acks, 5000
	for _, p := range in {
		n := len(msg.Topics)
		if n == 0 || msg.Topics[n-1].Topic != p.topic {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.topic, kitTopicID(p.topic)
			msg.Topics = append(msg.Topics, t)
			n++
		}
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = p.partition, p.records
		msg.Topics[n-1].Partitions = append(msg.Topics[n-1].Partitions, part)
	}
	return msg
}

// produce appends one batch with acks=all and gives the partition's answer.
func (k *dataKit) produce(version int16, topic string, partition int32, records []byte) kmsg.ProduceResponseTopicPartition {
	k.t.Helper()
	resp := ask[*kmsg.ProduceResponse](k, k.produceHandler(), produceRequest(-1, produced{topic, partition, records}), version)
	return resp.Topics[0].Partitions[0]
}

func (k *dataKit) mustProduce(topic string, partition int32, records []byte) {
	k.t.Helper()
	if p := k.produce(11, topic, partition, records); p.ErrorCode != 0 {
		k.t.Fatalf("produce: error %d", p.ErrorCode)
	}
}

// values makes a batch of records with these values and ascending timestamps.
func values(size int, n int, edit ...func(*batch.Spec)) []byte {
	spec := batch.Spec{LeaderEpoch: wire.NoLeaderEpoch}
	for _, e := range edit {
		e(&spec)
	}
	b := batch.NewBuilder(spec)
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() // where a bubble begins
	for i := range n {
		v := make([]byte, size)
		if size > 0 {
			v[0] = byte(i)
		}
		b.Add(batch.NewRecord{Timestamp: now + int64(i), Key: []byte("k"), Value: v})
	}
	out, _, err := b.Build(nil, compress.New())
	if err != nil {
		panic(err)
	}
	return out
}

func byProducer(id wire.ProducerID, epoch wire.ProducerEpoch, seq int32) func(*batch.Spec) {
	return func(s *batch.Spec) { s.Producer = &batch.Producer{ID: id, Epoch: epoch, Sequence: seq} }
}

// fetchOf makes a sessionless fetch.
func fetchOf(wait, minBytes, maxBytes int32, in ...kmsg.FetchRequestTopic) *kmsg.FetchRequest {
	msg := kmsg.NewPtrFetchRequest()
	msg.ReplicaID, msg.MaxWaitMillis, msg.MinBytes, msg.MaxBytes, msg.SessionEpoch = -1, wait, minBytes, maxBytes, -1
	msg.Topics = in
	return msg
}

func fetchTopic(name string, parts ...kmsg.FetchRequestTopicPartition) kmsg.FetchRequestTopic {
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID, t.Partitions = name, kitTopicID(name), parts
	return t
}

func fetchPart(p int32, offset int64, maxBytes int32) kmsg.FetchRequestTopicPartition {
	r := kmsg.NewFetchRequestTopicPartition()
	r.Partition, r.FetchOffset, r.PartitionMaxBytes = p, offset, maxBytes
	return r
}

// electLeader elects leader for partition 0 of a topic.
func electLeader(topic string, leader wire.BrokerID) coordrec.MetadataRecord {
	return &coordrec.PartitionChangeRecord{TopicID: kitTopicID(topic), Leader: leader, LeaderRecoveryState: coordrec.NoRecoveryChange}
}

// shrinkISR makes the ISR of partition 0 of a topic.
func shrinkISR(topic string, isr ...wire.BrokerID) coordrec.MetadataRecord {
	return &coordrec.PartitionChangeRecord{TopicID: kitTopicID(topic), ISR: isr, Leader: coordrec.NoLeaderChange, LeaderRecoveryState: coordrec.NoRecoveryChange}
}
