package log

import (
	"context"
	"log/slog"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

// epochZero is the wall clock of tests.
var epochZero = time.UnixMilli(1_700_000_000_000)

func testID() wire.UUID { return wire.UUID{15: 7} }

// tester is what testing.TB and rapid.T share.
type tester interface {
	Helper()
	Fatal(args ...any)
}

// bench is a log with what it takes to open it again.
type bench struct {
	t      tester
	fs     vfs.FS
	dir    string
	config Config
	now    time.Time
	codecs *compress.Codecs
	log    *Log
	rec    Recovery
}

func newBench(t tester, fs vfs.FS, change func(c *Config)) *bench {
	t.Helper()
	if fs == nil {
		fs = memfs.New(func() time.Time { return epochZero })
	}
	b := &bench{t: t, fs: fs, dir: "/data/t-0", config: *DefaultConfig(), now: epochZero, codecs: compress.New()}
	b.config.IndexIntervalBytes = 100
	if change != nil {
		change(&b.config)
	}
	b.must(fs.MkdirAll("/data"))
	b.must(fs.SyncDir("/"))
	b.open(false, 0)
	return b
}

func (b *bench) options(clean bool, recoveryPoint wire.Offset) Options {
	return Options{
		FS: b.fs, Dir: b.dir, TP: wire.TopicPartition{Topic: "t"}, TopicID: testID(), Config: &b.config,
		RecoveryPoint: recoveryPoint, Clean: clean, Wall: func() time.Time { return b.now },
		Logger: slog.New(slog.DiscardHandler), Codecs: b.codecs,
	}
}

func (b *bench) open(clean bool, recoveryPoint wire.Offset) {
	b.t.Helper()
	l, rec, err := Open(context.Background(), b.options(clean, recoveryPoint))
	if err != nil {
		b.t.Fatal(err)
	}
	b.log, b.rec = l, rec
}

// on gives a bench on another file system, for crash clones.
func (b *bench) on(t tester, fs vfs.FS) *bench {
	c := *b
	c.t, c.fs, c.log = t, fs, nil
	return &c
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// spec describes a batch for tests; records have values of size bytes.
type spec struct {
	n, size  int
	producer *batch.Producer
	txn      bool
	ts       int64
	codec    compress.Type
	key      []byte
}

func (b *bench) make(s spec) []byte {
	b.t.Helper()
	ts := s.ts
	if ts == 0 {
		ts = b.now.UnixMilli()
	}
	bl := batch.NewBuilder(batch.Spec{Producer: s.producer, Transactional: s.txn, Codec: s.codec, LeaderEpoch: -1, Level: 1})
	for i := range max(s.n, 1) {
		value := make([]byte, s.size)
		for j := range value {
			value[j] = byte('a' + (i+j)%26)
		}
		bl.Add(batch.NewRecord{Timestamp: ts + int64(i), Key: s.key, Value: value})
	}
	out, _, err := bl.Build(nil, b.codecs)
	b.must(err)
	return out
}

func (b *bench) validate(raw []byte) *Validated {
	b.t.Helper()
	v, err := Validate(raw, ValidateOptions{Config: &b.config, Now: b.now, ProduceVersion: 9, Codecs: b.codecs})
	b.must(err)
	return v
}

func (b *bench) append(s spec) Appended {
	b.t.Helper()
	a, err := b.log.AppendAsLeader(b.validate(b.make(s)), 0)
	b.must(err)
	return a
}

// marker appends an end-of-transaction marker.
func (b *bench) marker(id wire.ProducerID, epoch wire.ProducerEpoch, commit bool) Appended {
	b.t.Helper()
	a, err := b.tryMarker(id, epoch, commit)
	b.must(err)
	return a
}

// tryMarker is marker with the log's error.
func (b *bench) tryMarker(id wire.ProducerID, epoch wire.ProducerEpoch, commit bool) (Appended, error) {
	b.t.Helper()
	m, _ := batch.Marker{ProducerID: id, ProducerEpoch: epoch, EndTxn: batch.EndTxn{Commit: commit}, Timestamp: b.now.UnixMilli()}.Append(nil)
	v, err := Validate(m, ValidateOptions{Config: &b.config, Now: b.now, Coordinator: true, Codecs: b.codecs})
	b.must(err)
	return b.log.AppendAsLeader(v, 0)
}

// offsets lists first and last offset of every batch in the log.
func (b *bench) offsets() [][2]wire.Offset {
	b.t.Helper()
	var out [][2]wire.Offset
	b.must(b.log.Scan(b.log.StartOffset(), b.log.EndOffset(), func(x batch.Batch) error {
		out = append(out, [2]wire.Offset{x.BaseOffset(), x.LastOffset()})
		return nil
	}))
	return out
}

// bytes reads the log from an offset to its end, batch by batch.
func (b *bench) bytes(from wire.Offset) []byte {
	b.t.Helper()
	var out []byte
	b.must(b.log.Scan(from, b.log.EndOffset(), func(x batch.Batch) error {
		out = append(out, x...)
		return nil
	}))
	return out
}
