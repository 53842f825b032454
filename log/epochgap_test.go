package log

import (
	"testing"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// A clean start that finds no epoch checkpoint takes the epochs from the batches. That leaves the recovery point where it was: below
// it another broker's compaction may have left gaps between segments, which a start after a crash takes for lost bytes above it.
func TestRebuiltEpochsLeaveTheRecoveryPoint(t *testing.T) {
	for name, rebuild := range map[string]func(b *bench){
		"missing at a clean start": func(b *bench) {
			b.must(b.log.Close())
			b.must(b.fs.Remove(b.dir + "/" + epochFile))
			b.open(true, 12)
		},
		"in a log that is open": func(b *bench) { b.must(b.log.RebuildEpochs(4)) },
	} {
		t.Run(name, func(t *testing.T) {
			mem := memfs.New(nil)
			b := newBench(t, mem, nil)
			for range 4 {
				b.appendIn(4)
				b.must(b.log.Roll())
			}
			b.must(b.log.Close())
			for _, suffix := range []string{suffixLog, suffixIndex, suffixTimeIndex, suffixSnapshot} {
				b.must(removeFile(mem, b.dir+"/"+fileName(3, suffix)))
			}
			b.must(mem.SyncDir(b.dir))
			b.open(true, 12)
			rebuild(b)
			b.appendIn(5) // not flushed; a checkpoint of recovery points is written
			c := b.on(t, mem.Crash(memfs.Keep, 1))
			c.open(false, b.log.RecoveryPoint())
			if c.log.EndOffset() != 15 || len(c.offsets()) != 4 {
				t.Fatalf("recovery point %d: the log ends at %d of 15, holds %v", b.log.RecoveryPoint(), c.log.EndOffset(), c.offsets())
			}
		})
	}
}

// Compaction removes the first records of an epoch. Where the epoch begins is what a follower is told that has other records there:
// a start after a crash which reads the compacted segment again must not take the epoch to begin later.
func TestCompactionAndACrashMoveNoEpoch(t *testing.T) {
	mem := memfs.New(nil)
	b := newBench(t, mem, func(c *Config) { c.Compact, c.Delete = true, false })
	put := func(epoch wire.LeaderEpoch, key string) {
		t.Helper()
		_, err := b.tryPut(nil, false, compress.None, epoch, pair(key, "v"))
		b.must(err)
		b.must(b.log.FlushRecords())
	}
	for _, key := range []string{"a", "b", "c"} {
		put(4, key)
	}
	for _, key := range []string{"d", "e", "d", "e", "f"} {
		put(5, key)
	}
	b.must(b.log.Roll())
	point := b.log.RecoveryPoint()
	if st := b.clean(0); st.RecordsKept == st.RecordsRead {
		t.Fatal("nothing was compacted")
	}
	for _, rp := range []wire.Offset{point, b.log.RecoveryPoint()} {
		for _, fate := range []memfs.Fate{memfs.Lose, memfs.Keep, memfs.Coin} {
			c := b.on(t, mem.Crash(fate, 1))
			c.open(false, rp)
			if _, end, ok := c.log.EndOffsetForEpoch(4); !ok || end != 3 {
				t.Fatalf("recovery point %d, fate %d: epoch 4 ends at %d, want 3", rp, fate, end)
			}
		}
	}
}
