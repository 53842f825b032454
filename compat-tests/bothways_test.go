package compattests_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The files of a stopped Kafka's partitions, compacted, compressed and transactional, written under leader epochs that the receiver has
// not reached, put under kaja's topic of the same name, serve the same records at the same offsets, and kaja's under Kafka. kaja
// writes on above those epochs; Kafka does under those of its own.
func TestPartitionFilesBothWays(t *testing.T) {
	need(t, "java")
	const partitions = 3
	ours := kind(t)
	settings := map[string]string{"log.cleaner.backoff.ms": "100", "transaction.state.log.num.partitions": "1"}
	for _, way := range []struct{ from, to target.Kind }{{target.Kafka, ours}, {ours, target.Kafka}} {
		t.Run(fmt.Sprintf("%s to %s", way.from, way.to), func(t *testing.T) {
			from, to := brokerOf(t, way.from, settings), brokerOf(t, way.to, settings)
			for _, b := range []*target.Broker{from, to} {
				makeTopic(t, b, compactionTopic, partitions, map[string]string{
					"cleanup.policy": "compact", "internal.segment.bytes": strconv.Itoa(compactionSegment), "min.cleanable.dirty.ratio": "1"})
			}
			for phase := range 2 { // the second history is not compacted
				writeHistory(t, from, partitions, rand.New(rand.NewPCG(11, uint64(phase))), phase)
				if phase == 0 {
					compact(t, from, partitions)
					for range 2 { // each stop and each start is another leader epoch
						restart(t, from, true)
						awaitLeaders(t, from, compactionTopic, partitions)
					}
				}
			}
			c := dial(t, to)
			for p := range int32(partitions) { // makes the directories
				mustProduce(t, c, compactionTopic, p, raw.NewBatch(raw.Record{Key: []byte("x"), Value: []byte("y")}).Bytes())
			}
			want := [][][]string{readCompacted(t, from, partitions, kgo.ReadCommitted()), readCompacted(t, from, partitions, kgo.ReadUncommitted())}
			for _, b := range []*target.Broker{from, to} {
				if err := b.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			for p := range partitions {
				transplant(t, from, to, fmt.Sprintf("%s-%d", compactionTopic, p))
			}
			if err := to.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			awaitLeaders(t, to, compactionTopic, partitions)
			for i, level := range []kgo.IsolationLevel{kgo.ReadCommitted(), kgo.ReadUncommitted()} {
				got := readCompacted(t, to, partitions, level)
				for p := range partitions {
					if !slices.Equal(got[p], want[i][p]) {
						t.Errorf("partition %d: %d records, want %d; the first that differs:\n%s", p, len(got[p]), len(want[i][p]), firstDifference(got[p], want[i][p]))
					}
				}
			}
			writesOn(t, to, partitions)
		})
	}
}

// writesOn appends to partitions that were taken over, and looks at the leader epoch of what it wrote.
func writesOn(t *testing.T, b *target.Broker, partitions int) {
	t.Helper()
	c := dial(t, b)
	for p := range int32(partitions) {
		old := int32(0)
		for _, h := range fetchBatches(t, c, compactionTopic, p, listOffset(t, c, compactionTopic, p, -2).Offset) {
			old = max(old, h.LeaderEpoch)
		}
		if old < 4 {
			t.Errorf("partition %d: the files hold leader epochs up to %d, want old ones", p, old)
		}
		base := mustProduce(t, c, compactionTopic, p, raw.NewBatch(raw.Record{Key: []byte("x"), Value: []byte("after")}).Bytes())
		if got := fetchBatches(t, c, compactionTopic, p, base); len(got) != 1 || b.Kind == target.Kaja && got[0].LeaderEpoch <= old {
			t.Errorf("partition %d: written on under leader epoch %d, the files hold %d", p, got[0].LeaderEpoch, old)
		}
	}
}

// transplant replaces the files of a partition by another broker's; the receiver's partition.metadata stays.
func transplant(t *testing.T, from, to *target.Broker, name string) {
	t.Helper()
	const keep = "partition.metadata"
	source, dest := filepath.Join(from.DataDir(), name), filepath.Join(to.DataDir(), name)
	old, err := os.ReadDir(dest)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range old {
		if f.Name() != keep {
			if err := os.Remove(filepath.Join(dest, f.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == keep || strings.HasSuffix(f.Name(), ".deleted") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(source, f.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dest, f.Name()), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
