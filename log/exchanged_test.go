package log

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// chapter writes batches of two producers and of several epochs over several segments, and closes the log.
func (b *bench) chapter(first, n, size int) {
	b.t.Helper()
	next := map[wire.ProducerID]int32{}
	for _, x := range b.batches() {
		next[x.ProducerID()] = x.LastSequence() + 1
	}
	for i := first; i < first+n; i++ {
		b.now = b.now.Add(time.Duration(1+i%7) * time.Second)
		id := wire.ProducerID(1 + i%2)
		s := spec{n: 1 + i%3, size: size + i%5, ts: b.now.Add(-time.Duration(i%4) * 3 * time.Second).UnixMilli(),
			producer: &batch.Producer{ID: id, Sequence: next[id]}}
		next[id] += int32(s.n)
		_, err := b.log.AppendAsLeader(b.validate(b.make(s)), wire.LeaderEpoch(i/5))
		b.must(err)
	}
	b.must(b.log.Close())
}

// batches are copies of those in the log.
func (b *bench) batches() (out []batch.Batch) {
	b.t.Helper()
	b.must(b.log.Scan(0, b.log.EndOffset(), func(x batch.Batch) error {
		out = append(out, bytes.Clone(x))
		return nil
	}))
	return out
}

// files are those of the log's directory.
func (b *bench) files() map[string][]byte {
	b.t.Helper()
	names, err := b.fs.List(b.dir)
	b.must(err)
	out := map[string][]byte{}
	for _, n := range names {
		out[n], err = vfs.ReadFile(b.fs, b.dir+"/"+n)
		b.must(err)
	}
	return out
}

// D4: a side file that is another partition's, or its own of an earlier or a later time, makes no offset wrong: it is not believed, or
// what it says is true. Nothing in Kafka's formats tells whose a transaction index, a leader-epoch checkpoint or a producer snapshot is
// (docs/limits.md); what is read again is not taken from them.
func TestSideFilesOfAnotherTimeOrPartition(t *testing.T) {
	fresh := func() *bench {
		return newBench(t, memfs.New(nil), func(c *Config) { c.SegmentBytes, c.IndexIntervalBytes = 900, 100 })
	}
	b, times := fresh(), []map[string][]byte{}
	var want []batch.Batch
	for i := range 3 {
		if i > 0 {
			b.open(true, b.log.EndOffset())
		}
		b.chapter(i*20, 20, 40)
		times = append(times, b.files())
		if i == 1 {
			b.open(true, b.log.EndOffset())
			want = b.batches()
			b.must(b.log.Close())
		}
	}
	other := fresh()
	other.chapter(7, 30, 25)
	end := want[len(want)-1].NextOffset()
	tried := 0
	for name := range times[1] {
		_, suffix, _ := parseName(name)
		if suffix == suffixLog || suffix == suffixTxnIndex || name == metadataFile {
			continue
		}
		for from, files := range map[string]map[string][]byte{"an earlier time": times[0], "a later time": times[2], "another partition": other.files()} {
			data, ok := files[name]
			for n, d := range files { // one of the same kind, if there is none of the same name
				if _, s, _ := parseName(n); !ok && suffix != "" && s == suffix && len(d) > len(data) {
					data = d
				}
			}
			if data == nil || bytes.Equal(data, times[1][name]) {
				continue
			}
			for how, point := range map[string]wire.Offset{"clean": end, "unclean": end, "unclean, all read": 0} {
				if name == epochFile && point > 0 || suffix == suffixSnapshot && how == "clean" {
					continue
				}
				tried++
				c := fresh()
				c.must(c.log.Close())
				for n, d := range times[1] {
					c.must(vfs.WriteAtomic(c.fs, c.dir+"/"+n, d))
				}
				c.must(vfs.WriteAtomic(c.fs, c.dir+"/"+name, data))
				o := c.options(how == "clean", point)
				o.Changed = true
				l, _, err := Open(t.Context(), o)
				if err != nil {
					t.Logf("%s of %s, %s: refused: %v", name, from, how, err)
					continue
				}
				c.log = l
				if why := c.differs(want); why != "" {
					t.Errorf("%s of %s, %s start: %s", name, from, how, why)
				}
				c.must(c.log.Close())
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d exchanges were tried", tried)
	}
}

// differs says in what the log is not the one of these batches: what it holds, where epochs and times are, and whom it knows.
func (b *bench) differs(want []batch.Batch) string {
	b.t.Helper()
	if !slices.EqualFunc(b.batches(), want, func(x, y batch.Batch) bool { return bytes.Equal(x, y) }) {
		return "other batches"
	}
	for _, x := range want {
		if e := b.log.EpochAt(x.BaseOffset()); e != x.LeaderEpoch() {
			return "another epoch"
		}
		first := want[slices.IndexFunc(want, func(y batch.Batch) bool { return y.MaxTimestamp() >= x.MaxTimestamp() })]
		if at, ok, err := b.log.OffsetForTimestamp(x.MaxTimestamp(), b.log.EndOffset()); err != nil || !ok || at.Offset < first.BaseOffset() || at.Offset > first.LastOffset() {
			return "another place of a time"
		}
		if r, err := b.log.Read(x.BaseOffset(), ReadOptions{Max: 1, End: b.log.EndOffset(), MinOne: true}); err != nil || r.Size < x.Size() {
			return "nothing at an offset"
		}
	}
	for _, id := range []wire.ProducerID{1, 2} {
		i := len(want) - 1
		for want[i].ProducerID() != id {
			i--
		}
		again := batch.Batch(bytes.Clone(want[i]))
		again.SetBaseOffset(0)
		again.SetLeaderEpoch(-1)
		if a, err := b.log.AppendAsLeader(b.validate(again), 99); err != nil || !a.Duplicate || a.First != want[i].BaseOffset() {
			return "a producer's last batch is not known"
		}
	}
	return ""
}
