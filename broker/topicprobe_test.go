package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicProbe shows that a topic config is enforced: what look sees of a topic without it and of one with the value.
type topicProbe struct {
	name, value string
	with        map[string]string // set on both topics
	look        func(p *probe) string
	off, on     string // what look sees; on "*": anything but off
	elsewhere   string // the test that shows it, where one node can't
}

// probe is a topic of a running node, and a log on a disk of its own with the configuration that the node gives the topic's.
type probe struct {
	t      *testing.T
	n      *node
	c      *client
	topic  string
	config *log.Config
	mem    *memfs.FS
	now    time.Time
	log    *log.Log
	codecs *compress.Codecs
}

const probeDir = "/probe/t-0"

func (p *probe) open() {
	p.t.Helper()
	p.mem, p.now, p.codecs = memfs.New(nil), time.UnixMilli(1_700_000_000_000), compress.New()
	l, _, err := log.Open(p.t.Context(), log.Options{FS: p.mem, Dir: probeDir, TP: wire.TopicPartition{Topic: "t"}, TopicID: wire.UUID{1},
		Config: p.config, Clean: true, Wall: func() time.Time { return p.now }, Logger: slog.New(slog.DiscardHandler), Codecs: p.codecs})
	if err != nil {
		p.t.Fatal(err)
	}
	p.log = l
}

// batch makes a batch of one record whose value has so many bytes; without a value (-1) it is a tombstone.
func (p *probe) batch(key string, value int, at time.Time) []byte {
	p.t.Helper()
	r := batch.NewRecord{Timestamp: at.UnixMilli(), Key: []byte(key)}
	if value >= 0 {
		r.Value = make([]byte, value)
		for i := range r.Value { // words that compress, and not all levels alike
			r.Value[i] = "abcdefgh"[(i*i/7+i/13)%8]
		}
	}
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	b.Add(r)
	out, _, err := b.Build(nil, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// put appends, and gives the stored batch, whether a segment was begun, and how the batch was refused.
func (p *probe) put(raw []byte) (batch.Batch, bool, string) {
	p.t.Helper()
	v, err := log.Validate(raw, log.ValidateOptions{Config: p.config, Now: p.now, ProduceVersion: 11, Codecs: p.codecs})
	if invalid, ok := errors.AsType[*log.ValidationError](err); ok {
		return nil, false, invalid.Code.Message
	}
	if err != nil {
		p.t.Fatal(err)
	}
	a, err := p.log.AppendAsLeader(v, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	return v.Batch, a.Rolled, "taken"
}

// fill appends n batches with values of so many bytes, all with one key.
func (p *probe) fill(n, size int) {
	p.t.Helper()
	for range n {
		if _, _, got := p.put(p.batch("k", size, p.now)); got != "taken" {
			p.t.Fatal(got)
		}
	}
}

func (p *probe) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// produce sends a record to the topic on the node with acks=1, and gives the error code.
func (p *probe) produce() int16 {
	p.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, 1, 10_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: p.topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: p.batch("k", 10, time.Now())}}}}
	return p.c.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
}

// segments is how many there are after ten batches of about 600 bytes.
func segments(p *probe) string {
	p.fill(10, 530)
	return fmt.Sprint(p.log.Segments())
}

// stored is the size of a batch as it is stored.
func stored(p *probe) string {
	b, _, _ := p.put(p.batch("k", 20_000, p.now))
	return fmt.Sprint(len(b))
}

// rolls tells how a batch that is 999 s younger than the first one finds the segment.
func rolls(p *probe) string {
	p.fill(1, 10)
	p.now = p.now.Add(999 * time.Second)
	_, rolled, _ := p.put(p.batch("k", 10, p.now))
	return fmt.Sprint(rolled)
}

// deletes is how many segments retention takes a day later.
func deletes(p *probe) string {
	p.fill(3, 600_000)
	n, err := p.log.DeleteOld(p.now.Add(24*time.Hour), p.log.EndOffset())
	p.must(err)
	return fmt.Sprint(n)
}

// plan is what could be compacted two hours later.
func (p *probe) plan() log.CleanPlan {
	p.t.Helper()
	plan, err := p.log.PlanClean(wire.NoOffset, p.log.EndOffset(), p.now.Add(2*time.Hour))
	p.must(err)
	return plan
}

// tombstones is how many records are left of a tombstone and what it deletes, compacted now and two hours later.
func tombstones(p *probe) string {
	p.fill(1, 10)
	p.put(p.batch("k", -1, p.now))
	p.must(p.log.Roll())
	p.fill(1, 10)
	p.must(p.log.Roll())
	for _, at := range []time.Time{p.now, p.now.Add(2 * time.Hour)} {
		plan, err := p.log.PlanClean(wire.NoOffset, 2, at)
		p.must(err)
		_, err = p.log.Clean(context.Background(), plan, log.CleanOptions{Now: at, MapBytes: 1 << 20, MapLoad: 0.9, BufferBytes: 1 << 16})
		p.must(err)
	}
	left := 0
	p.must(p.log.Scan(0, 2, func(b batch.Batch) error { left += int(b.Count()); return nil }))
	return fmt.Sprint(left)
}

var compacted = map[string]string{"cleanup.policy": "compact"}

var topicProbes = []topicProbe{
	{name: "cleanup.policy", value: "compact", with: map[string]string{"retention.ms": "1000", "segment.bytes": "1048576"}, look: deletes, off: "3", on: "0"},
	{name: "compression.type", value: "gzip", off: "none", on: "gzip", look: func(p *probe) string {
		b, _, _ := p.put(p.batch("k", 2000, p.now))
		return b.Codec().String()
	}},
	{name: "compression.gzip.level", value: "1", with: map[string]string{"compression.type": "gzip"}, look: stored, on: "*"},
	{name: "compression.lz4.level", value: "1", with: map[string]string{"compression.type": "lz4"}, look: stored, on: "*"},
	{name: "compression.zstd.level", value: "19", with: map[string]string{"compression.type": "zstd"}, look: stored, on: "*"},
	{name: "delete.retention.ms", value: "60000", with: compacted, look: tombstones, off: "1", on: "0"},
	{name: "file.delete.delay.ms", value: "1000", with: map[string]string{"retention.ms": "1000", "segment.bytes": "1048576"}, off: "true", on: "false",
		look: func(p *probe) string {
			deletes(p)
			at := p.now.Add(24*time.Hour + 30*time.Second)
			p.must(p.log.RemoveDeleted(at))
			_, more := p.log.NextRemoval(at)
			return fmt.Sprint(more)
		}},
	{name: "flush.messages", value: "5", off: "false", on: "true", look: func(p *probe) string {
		p.fill(5, 10)
		return fmt.Sprint(p.log.NeedsFlush(p.now))
	}},
	{name: "flush.ms", value: "1000", off: "false", on: "true", look: func(p *probe) string {
		p.fill(1, 10)
		return fmt.Sprint(p.log.NeedsFlush(p.now.Add(time.Second)))
	}},
	{name: "index.interval.bytes", value: "0", off: "1", on: "9", look: func(p *probe) string {
		p.fill(10, 530)
		p.must(p.log.Close())
		info, err := p.mem.Stat(probeDir + "/00000000000000000000.index")
		p.must(err)
		return fmt.Sprint(info.Size / 8)
	}},
	{name: "internal.segment.bytes", value: "1300", look: segments, off: "1", on: "5"},
	{name: "kaja.fsync", value: "never", off: "true", on: "false", look: func(p *probe) string {
		if code := p.produce(); code != 0 {
			p.t.Fatal(code)
		}
		n, err := p.n.env.FS.(*memfs.FS).SyncedSize("/data/" + p.topic + "-0/00000000000000000000.log")
		p.must(err)
		return fmt.Sprint(n > 0)
	}},
	{name: "max.compaction.lag.ms", value: "3600000", with: compacted, off: "false", on: "true", look: func(p *probe) string {
		p.fill(2, 10)
		p.must(p.log.Roll())
		return fmt.Sprint(p.plan().Overdue > 0)
	}},
	{name: "max.decompressed.message.bytes", value: "1000", off: "taken", on: "*", look: func(p *probe) string {
		b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Codec: compress.Gzip, Level: 6})
		b.Add(batch.NewRecord{Timestamp: p.now.UnixMilli(), Value: make([]byte, 100_000)})
		raw, _, err := b.Build(nil, p.codecs)
		p.must(err)
		_, _, got := p.put(raw)
		return got
	}},
	{name: "max.message.bytes", value: "100", off: "taken", on: "MESSAGE_TOO_LARGE", look: func(p *probe) string {
		_, _, got := p.put(p.batch("k", 100, p.now))
		return got
	}},
	{name: "message.timestamp.after.max.ms", value: "1000", off: "taken", on: "INVALID_TIMESTAMP", look: func(p *probe) string {
		_, _, got := p.put(p.batch("k", 1, p.now.Add(time.Minute)))
		return got
	}},
	{name: "message.timestamp.before.max.ms", value: "1000", off: "taken", on: "INVALID_TIMESTAMP", look: func(p *probe) string {
		_, _, got := p.put(p.batch("k", 1, p.now.Add(-time.Minute)))
		return got
	}},
	{name: "message.timestamp.type", value: "LogAppendTime", off: "false", on: "true", look: func(p *probe) string {
		b, _, _ := p.put(p.batch("k", 1, p.now))
		return fmt.Sprint(b.LogAppendTime())
	}},
	{name: "min.cleanable.dirty.ratio", value: "1", with: compacted, off: "true", on: "false", look: func(p *probe) string {
		p.fill(2, 10)
		p.must(p.log.Roll())
		return fmt.Sprint(p.plan().Due(p.config))
	}},
	{name: "min.compaction.lag.ms", value: "86400000", with: compacted, off: "true", on: "false", look: func(p *probe) string {
		p.fill(2, 10)
		p.must(p.log.Roll())
		return fmt.Sprint(p.plan().DirtyBytes > 0)
	}},
	{name: "min.insync.replicas", elsewhere: "broker/api.TestISRShrinksAndGrows"}, // of a lone replica it asks for no more than that
	{name: "preallocate", value: "true", off: "0", on: fmt.Sprint(1 << 30), look: func(p *probe) string {
		n, err := p.mem.Allocated(probeDir + "/00000000000000000000.log")
		p.must(err)
		return fmt.Sprint(n)
	}},
	{name: "retention.bytes", value: "1000", with: map[string]string{"segment.bytes": "1048576"}, look: deletes, off: "0", on: "2"},
	{name: "retention.ms", value: "1000", with: map[string]string{"segment.bytes": "1048576"}, look: deletes, off: "0", on: "3"},
	{name: "segment.bytes", value: "1048576", off: "1", on: "3", look: func(p *probe) string {
		p.fill(3, 600_000)
		return fmt.Sprint(p.log.Segments())
	}},
	{name: "segment.index.bytes", value: "24", with: map[string]string{"index.interval.bytes": "0"}, look: segments, off: "1", on: "*"},
	{name: "segment.jitter.ms", value: "1000000", with: map[string]string{"segment.ms": "1000000"}, look: rolls, off: "false", on: "true"},
	{name: "segment.ms", value: "1000", look: rolls, off: "false", on: "true"},
	{name: "unclean.leader.election.enable", elsewhere: "sim/loop.TestR22UncleanElection"},
}

// Every topic config that is called enforced has a probe: a topic that is made with it behaves otherwise than one without.
func TestEveryTopicConfigIsEnforced(t *testing.T) {
	probes := map[string]topicProbe{}
	for _, p := range topicProbes {
		probes[p.name] = p
	}
	n := start(t, memfs.New(time.Now), nil)
	c := n.dial()
	for i, def := range config.TopicDefs() {
		p, ok := probes[def.Name]
		if ok != (def.Status == config.Enforced) {
			t.Errorf("%s: enforced is %v, has a probe: %v", def.Name, def.Status == config.Enforced, ok)
		}
		delete(probes, def.Name)
		if !ok {
			continue
		}
		t.Run(def.Name, func(t *testing.T) {
			if p.elsewhere != "" {
				declaredElsewhere(t, p.elsewhere)
				return
			}
			off := p.seen(t, n, c, fmt.Sprintf("off-%d", i), nil)
			on := p.seen(t, n, c, fmt.Sprintf("on-%d", i), &p.value)
			if p.on == "*" {
				if on == off || p.off != "" && off != p.off {
					t.Errorf("without it %s is seen, want %q; with %s %s", off, p.off, p.value, on)
				}
				return
			}
			if off != p.off || on != p.on {
				t.Errorf("without it %s is seen, want %s; with %s %s, want %s", off, p.off, p.value, on, p.on)
			}
		})
	}
	for name := range probes {
		t.Errorf("%s: a probe of no topic config", name)
	}
}

// seen makes a topic and looks.
func (tp topicProbe) seen(t *testing.T, n *node, c *client, topic string, value *string) string {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 10_000
	ct := kmsg.CreateTopicsRequestTopic{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}
	for k, v := range tp.with {
		ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	if value != nil {
		ct.Configs = append(ct.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: tp.name, Value: value})
	}
	req.Topics = []kmsg.CreateTopicsRequestTopic{ct}
	if got := c.ask(req).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("%s: error %d", topic, got.ErrorCode)
	}
	p := &probe{t: t, n: n, c: c, topic: topic, config: n.topics.log(n.Image(), topic)}
	p.open()
	return tp.look(p)
}

// declaredElsewhere wants a test of this name, package first, in that package.
func declaredElsewhere(t *testing.T, name string) {
	t.Helper()
	dir, test, _ := strings.Cut(name, ".")
	files, err := os.ReadDir("../" + dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if src, err := os.ReadFile("../" + dir + "/" + f.Name()); err == nil && strings.Contains(string(src), "func "+test+"(") {
			return
		}
	}
	t.Errorf("there is no %s", name)
}
