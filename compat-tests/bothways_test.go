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

// The files of a stopped Kafka's partitions, compacted, compressed and transactional, put under kaja's topic of the same name,
// serve the same records at the same offsets, and kaja's under Kafka.
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
		})
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
