package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// keyed makes a batch of one record.
func keyed(key, value string) []byte {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Key: []byte(key), Value: []byte(value)})
	out, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err)
	}
	return out
}

func compacting() *log.Config {
	c := log.DefaultConfig()
	c.Compact, c.Delete, c.SegmentBytes, c.FileDeleteDelay = true, false, 1000, time.Second
	return c
}

// newCleanerKit is a manager with one compacted topic and a cleaner that looks once a second.
func newCleanerKit(t *testing.T, fs vfs.FS) *kit {
	k := newKit(t, fs)
	k.config["t"] = compacting()
	k.o.Cleaner = func(*image.Image) CleanerConfig {
		return CleanerConfig{Threads: 2, MapBytes: 1 << 20, MapLoad: 0.9, BufferBytes: 1 << 16, BytesPerSecond: 1e9, Backoff: time.Second}
	}
	return k
}

func (k *kit) fill(p *Partition, n int) {
	k.t.Helper()
	for i := range n {
		k.append(p, keyed(fmt.Sprint("k", i%3), fmt.Sprint(i)), 1)
	}
}

// The cleaner finds what is due by itself, compacts it, writes down how far it came in Kafka's checkpoint, and has the
// replaced files removed.
func TestCleanerCompacts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New(nil)
		k := newCleanerKit(t, fs)
		k.topic("t", topicID("t"), 1)
		k.open()
		p := k.part("t", 0)
		k.fill(p, 100)
		before := p.Size()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if p.Size() >= before/2 {
			t.Errorf("%d bytes are left of %d", p.Size(), before)
		}
		cleaned := p.cleaned.Load()
		data, err := vfs.ReadFile(fs, "data/cleaner-offset-checkpoint")
		if want := fmt.Sprintf("0\n1\nt 0 %d\n", cleaned); err != nil || string(data) != want || cleaned < 80 {
			t.Errorf("checkpoint %q, want %q; %v", data, want, err)
		}
		names, err := fs.List("data/t-0")
		if err != nil || strings.Contains(strings.Join(names, " "), ".deleted") {
			t.Errorf("%v, %v", names, err)
		}
		k.close()
		k.open()
		if p := k.part("t", 0); p.cleaned.Load() != cleaned {
			t.Errorf("after a restart the log is compacted up to %d, want %d", p.cleaned.Load(), cleaned)
		}
		k.close()
	})
}

// D3: a bit that flipped in a sealed segment takes that partition offline with its name, and nothing is cut off.
func TestCleanerFindsBitRot(t *testing.T) {
	fs := memfs.New(nil)
	k := newCleanerKit(t, fs)
	k.o.Cleaner, k.fsync = nil, FSyncNever
	k.topic("t", topicID("t"), 2)
	k.open()
	p := k.part("t", 0)
	k.fill(p, 100)
	f, err := fs.OpenRW("data/t-0/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 300); err != nil {
		t.Fatal(err)
	}
	size := p.Size()
	picked, plan := k.m.clean.pick()
	if picked != p || k.m.clean.clean(p, plan, CleanerConfig{Threads: 1, MapBytes: 1 << 20}) {
		t.Fatalf("picked %v", picked)
	}
	if err := p.Err(); !errors.Is(err, ErrOffline) || !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "00000000000000000000.log") {
		t.Errorf("error %v", err)
	}
	if p.Size() != size || k.part("t", 1).Err() != nil {
		t.Errorf("%d bytes of %d; the other partition: %v", p.Size(), size, k.part("t", 1).Err())
	}
	if picked, _ := k.m.clean.pick(); picked != nil {
		t.Error("picked again")
	}
	k.close()
}

// A bound on bytes per second holds over all who share it.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pace
		p.set(1000)
		began := time.Now()
		for range 21 {
			if err := p.wait(t.Context(), 500); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("10,000 bytes before the last 500 took %v", took)
		}
	})
}

// The scrubber finds a flip in a sealed segment, takes that partition offline and leaves the others alone, at its bounded
// rate.
func TestScrubber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New(nil)
		k := newCleanerKit(t, fs)
		k.o.Cleaner, k.o.Scrub = nil, ScrubConfig{BytesPerSecond: 100, Interval: time.Hour}
		k.topic("t", topicID("t"), 2)
		k.open()
		k.fill(k.part("t", 0), 100)
		k.fill(k.part("t", 1), 100)
		sealed := k.part("t", 0).plog().SealedSize() + k.part("t", 1).plog().SealedSize()
		pass := time.Duration(sealed) * time.Second / 100
		if got := k.m.scrub.fullPass(); got != pass {
			t.Errorf("a pass is said to take %v, want %v", got, pass)
		}
		f, err := fs.OpenRW("data/t-1/00000000000000000000.log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, 300); err != nil {
			t.Fatal(err)
		}
		time.Sleep(scrubDelay + time.Second)
		synctest.Wait()
		if err := k.part("t", 1).Err(); err != nil {
			t.Errorf("found beyond the rate: %v", err)
		}
		time.Sleep(pass + time.Second)
		synctest.Wait()
		if err := k.part("t", 1).Err(); !errors.Is(err, ErrOffline) || !strings.Contains(err.Error(), "t-1/00000000000000000000.log is corrupt at byte") {
			t.Errorf("error %v", err)
		}
		if err := k.part("t", 0).Err(); err != nil {
			t.Errorf("the other partition: %v", err)
		}
		k.close()
	})
}

// The coordinator of an internal partition whose stored records are damaged is told to end, once, as soon as the damage is found.
func TestCoordinatorsResignWithDamagedRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New(nil)
		k := newKit(t, fs)
		k.config[image.OffsetsTopic] = compacting()
		k.o.Scrub = ScrubConfig{BytesPerSecond: 1 << 20, Interval: time.Hour}
		var said []string
		k.o.Elected = func(p *Partition, _ wire.LeaderEpoch) { said = append(said, "elected "+p.TP.String()) }
		k.o.Resigned = func(p *Partition, _ wire.LeaderEpoch) { said = append(said, "resigned "+p.TP.String()) }
		damaged := make(chan *Partition, 2)
		k.o.Damaged = func(p *Partition) { damaged <- p }
		k.topic(image.OffsetsTopic, topicID(image.OffsetsTopic), 2)
		k.open()
		p := k.part(image.OffsetsTopic, 1)
		k.fill(k.part(image.OffsetsTopic, 0), 100)
		k.fill(p, 100)
		f, err := fs.OpenRW("data/" + p.TP.String() + "/00000000000000000000.log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0xff}, 300); err != nil {
			t.Fatal(err)
		}
		said = nil
		if got := <-damaged; got != p || !errors.Is(p.Err(), ErrOffline) {
			t.Errorf("%s is said to be damaged; %s: %v", got.TP, p.TP, p.Err())
		}
		k.m.ResignOffline()
		k.m.ResignOffline()
		if want := []string{"resigned " + p.TP.String()}; !slices.Equal(said, want) {
			t.Errorf("said %v, want %v", said, want)
		}
		k.close()
	})
}
