package raftctl

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"pgregory.net/rapid"
)

// Every placement has distinct replicas and a leader that can lead; all brokers get as many leaders, without racks their
// replicas differ by at most two, and with racks the replicas of a partition are in as many racks as there can be.
func TestPlacementIsBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		brokers := rapid.IntRange(1, 9).Draw(t, "brokers")
		racks := rapid.IntRange(1, 3).Draw(t, "racks")
		rf := rapid.IntRange(1, brokers).Draw(t, "rf")
		var records []coordrec.MetadataRecord
		used := map[string]bool{}
		for id := range brokers {
			rack := string(rune('a' + id%racks))
			used[rack] = true
			records = append(records, &coordrec.RegisterBrokerRecord{
				BrokerID: wire.BrokerID(id), BrokerEpoch: wire.BrokerEpoch(id + 1), Rack: &rack, LogDirs: []wire.UUID{{14: byte(id), 15: 200}},
			})
		}
		img, _, err := image.Empty(testCluster).With(image.Position{}, records)
		if err != nil {
			t.Fatal(err)
		}
		p := newPlacer(img, rand.New(rand.NewPCG(uint64(rapid.IntRange(0, 99).Draw(t, "seed")), 1)).IntN)
		leads, holds := make([]int, brokers), make([]int, brokers)
		for range 4 * brokers {
			replicas := p.place(rf)
			in := map[string]bool{}
			for _, id := range replicas {
				b, _ := img.Broker(id)
				in[b.Rack] = true
				holds[id]++
			}
			leads[replicas[0]]++
			if sorted := slices.Sorted(slices.Values(replicas)); len(slices.Compact(sorted)) != rf {
				t.Fatalf("replicas %v, want %d distinct ones", replicas, rf)
			}
			if len(in) != min(rf, len(used)) {
				t.Fatalf("replicas %v are in %d racks, want %d", replicas, len(in), min(rf, len(used)))
			}
		}
		if slices.Min(leads) != slices.Max(leads) {
			t.Fatalf("leaders by broker: %v", leads)
		}
		if racks == 1 && slices.Max(holds)-slices.Min(holds) > 2 {
			t.Fatalf("replicas by broker: %v", holds)
		}
	})
}
