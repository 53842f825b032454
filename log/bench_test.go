package log

import (
	"bytes"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

// An append of one batch is one write, whatever the size, and allocates nothing once the log is warm.
func TestAppendIsOneWriteWithoutAllocation(t *testing.T) {
	faults := faultfs.New(memfs.New(nil))
	b := newBench(t, faults, func(c *Config) { c.IndexIntervalBytes = 4096 })
	v := b.validate(b.make(spec{n: 64, size: 1000}))
	b.append(spec{n: 1})
	writes := faults.Calls(faultfs.OpWrite)
	for range 20 {
		_, err := b.log.AppendAsLeader(v, 0)
		b.must(err)
	}
	if got := faults.Calls(faultfs.OpWrite) - writes; got != 20 {
		t.Errorf("20 appends made %d writes", got)
	}
	discard := newBench(t, discardFS{memfs.New(nil)}, func(c *Config) { c.IndexIntervalBytes = 1 << 30 })
	if _, err := discard.log.AppendAsLeader(v, 0); err != nil {
		t.Fatal(err)
	}
	if got := testing.AllocsPerRun(100, func() {
		if _, err := discard.log.AppendAsLeader(v, 0); err != nil {
			t.Error(err)
		}
	}); got != 0 {
		t.Errorf("an append allocates %v times", got)
	}
}

// discardFS takes writes to .log files without keeping them, so that only the log's own work is measured.
type discardFS struct{ *memfs.FS }

func (d discardFS) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return discardFile{f}, err
}

type discardFile struct{ vfs.File }

func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

func TestReadAllocations(t *testing.T) {
	b := newBench(t, nil, nil)
	for range 50 {
		b.append(spec{n: 2, size: 100})
	}
	got := testing.AllocsPerRun(100, func() {
		res, err := b.log.Read(98, ReadOptions{Max: 1 << 20, End: 100, MinOne: true})
		if err != nil || res.Size == 0 {
			t.Error(err)
		}
		wire.Release(res.Segments)
	})
	if got > 4 { // the segment slice, its Done, the file name, the pin
		t.Errorf("a read at the tail allocates %v times", got)
	}
}

func BenchmarkAppend64KiB(b *testing.B) {
	dir := b.TempDir()
	bn := &bench{t: b, fs: vfs.OS{}, dir: dir + "/t-0", config: *DefaultConfig(), now: epochZero, codecs: compress.New()}
	bn.config.SegmentBytes = 256 << 20
	bn.open(false, 0)
	v := bn.validate(bn.make(spec{n: 64, size: 1000}))
	b.SetBytes(int64(len(v.Batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bn.log.AppendAsLeader(v, 0); err != nil {
			b.Fatal(err)
		}
		if bn.log.Size() > 1<<30 { // bound the disk
			b.StopTimer()
			bn.must(bn.log.TruncateFullyAndStart(bn.log.EndOffset()))
			b.StartTimer()
		}
	}
	bn.must(bn.log.Delete())
}

func BenchmarkValidate64KiB(b *testing.B) {
	bn := newBench(b, nil, nil)
	raw := bn.make(spec{n: 64, size: 1000})
	work := bytes.Clone(raw)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		copy(work, raw)
		bn.validate(work)
	}
}

func BenchmarkReadTail(b *testing.B) {
	bn := newBench(b, nil, func(c *Config) { c.IndexIntervalBytes = 4096 })
	for range 1000 {
		bn.append(spec{n: 2, size: 500})
	}
	for _, c := range []struct {
		name string
		from wire.Offset
	}{{"tail", 1998}, {"middle", 777}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				res, err := bn.log.Read(c.from, ReadOptions{Max: 64 << 10, End: 2000, MinOne: true})
				if err != nil {
					b.Fatal(err)
				}
				wire.Release(res.Segments)
			}
		})
	}
}

func BenchmarkRecover(b *testing.B) {
	mem := memfs.New(nil)
	bn := newBench(b, mem, nil)
	for range 500 {
		bn.append(spec{n: 64, size: 1000, producer: &batch.Producer{ID: 1, Sequence: int32(bn.log.EndOffset())}})
	}
	b.SetBytes(bn.log.Size())
	for b.Loop() {
		c := bn.on(b, mem.Crash(memfs.Keep, 0))
		c.open(false, 0)
	}
}
