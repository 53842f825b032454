package log

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What was aborted is no duplicate (scenario P2): a producer whose transaction was aborted and that begins its sequences
// again, under its next epoch, is appended, and a retry of that is recognised.
func TestSequencesAfterAnAbort(t *testing.T) {
	b := newBench(t, nil, nil)
	first := b.append(spec{n: 2, producer: &batch.Producer{ID: 7, Epoch: 0}, txn: true})
	b.marker(7, 1, false)
	again := b.append(spec{n: 2, producer: &batch.Producer{ID: 7, Epoch: 1}, txn: true})
	if again.Duplicate || again.First <= first.First {
		t.Fatalf("the same sequences after an abort: %+v", again)
	}
	if retry := b.append(spec{n: 2, producer: &batch.Producer{ID: 7, Epoch: 1}, txn: true}); !retry.Duplicate || retry.First != again.First {
		t.Fatalf("the retry of that: %+v", retry)
	}
	// Under version 1 the epoch stays, and the sequences go on.
	v1 := b.append(spec{n: 2, producer: &batch.Producer{ID: 8}, txn: true})
	b.marker(8, 0, false)
	if next := b.append(spec{n: 2, producer: &batch.Producer{ID: 8, Sequence: 2}, txn: true}); next.Duplicate || next.First <= v1.First {
		t.Fatalf("the next sequences after an abort: %+v", next)
	}
}

// A marker of an older coordinator is refused for as long as the producer is remembered, and a marker counts as a sign of
// life (scenario T4, KAFKA-9144): a transaction that was open for long does not make its producer expire at its end.
func TestOlderCoordinatorIsRefused(t *testing.T) {
	b := newBench(t, nil, nil)
	mark := func(coordinator int32) error {
		m, _ := batch.Marker{ProducerID: 7, EndTxn: batch.EndTxn{Commit: true, CoordinatorEpoch: coordinator}, Timestamp: b.now.UnixMilli()}.Append(nil)
		v, err := Validate(m, ValidateOptions{Config: &b.config, Now: b.now, Coordinator: true, Codecs: b.codecs})
		b.must(err)
		_, err = b.log.AppendAsLeader(v, 0)
		return err
	}
	b.append(spec{producer: &batch.Producer{ID: 7}, txn: true})
	b.now = b.now.Add(b.config.ProducerIDExpiration + time.Hour)
	if n := b.log.ExpireProducers(b.now); n != 0 {
		t.Fatalf("%d producers with an open transaction were forgotten", n)
	}
	b.must(mark(5))
	b.now = b.now.Add(b.config.ProducerIDExpiration - time.Minute)
	if n := b.log.ExpireProducers(b.now); n != 0 {
		t.Fatalf("%d producers were forgotten before their time", n)
	}
	if err := mark(4); !errors.Is(err, kerr.TransactionCoordinatorFenced) {
		t.Fatalf("a marker of an older coordinator: %v", err)
	}
	b.must(mark(5)) // a repetition
}

// The aborted transactions of a range are all that touch it, whatever segments they lie in, and after the log was opened
// again (scenario T9): random transactions, every range, compared with a list.
func TestAbortedTransactionsOfEveryRange(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 9))
		b := newBench(t, nil, func(c *Config) { c.SegmentBytes = 700 })
		type aborted struct {
			AbortedTransaction
			last wire.Offset
		}
		var all []aborted
		open, sequences := map[wire.ProducerID]wire.Offset{}, map[wire.ProducerID]int32{}
		for range 150 {
			id := wire.ProducerID(1 + rng.IntN(5))
			first, has := open[id]
			if has && rng.IntN(3) == 0 {
				commit := rng.IntN(2) == 0
				m := b.marker(id, 0, commit)
				delete(open, id)
				if !commit {
					all = append(all, aborted{AbortedTransaction{id, first}, m.First})
				}
				continue
			}
			n := 1 + rng.IntN(3)
			a := b.append(spec{n: n, size: 10, producer: &batch.Producer{ID: id, Sequence: sequences[id]}, txn: true})
			sequences[id] += int32(n)
			if !has {
				open[id] = a.First
			}
		}
		compare := func(when string) {
			t.Helper()
			end := b.log.EndOffset()
			for from := wire.Offset(0); from < end; from += 7 {
				for to := from + 1; to <= end; to += 11 {
					var want []AbortedTransaction
					for _, a := range all {
						if a.last >= from && a.FirstOffset < to {
							want = append(want, a.AbortedTransaction)
						}
					}
					if got := b.log.AbortedTransactions(from, to); !slices.Equal(got, want) {
						t.Fatalf("seed %d, %s, [%d, %d): %v, want %v", seed, when, from, to, got, want)
					}
				}
			}
		}
		if b.log.Segments() < 5 {
			t.Fatalf("only %d segments", b.log.Segments())
		}
		compare("live")
		end := b.log.EndOffset()
		b.must(b.log.Close())
		b.open(true, end)
		compare("opened again")
		b.must(b.log.Close())
		b.open(false, 0)
		compare("recovered")
	}
}

// Many producers on one partition cost what they are worth, and the old ones go while the others stay (scenario P11).
func TestManyProducersOnOnePartition(t *testing.T) {
	const producers, each = 100_000, 400 // bytes, beside the log itself
	b := newBench(t, nil, nil)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	ps := newProducers(0)
	before := heap()
	for id := range wire.ProducerID(producers) {
		ps.add(&header{producerID: id, base: wire.Offset(id), last: wire.Offset(id), maxTime: b.now.UnixMilli() + int64(id%2)*3_600_000})
	}
	if used := int64(heap()) - int64(before); used > producers*each {
		t.Errorf("%d producers hold %d bytes, %d each; want at most %d", producers, used, used/producers, each)
	}
	age := 24 * time.Hour
	if n := ps.expire(b.now.Add(age), age); n != producers/2 {
		t.Errorf("%d producers expired, want %d", n, producers/2)
	}
	if len(ps.byID) != producers/2 || ps.byID[1] == nil || ps.byID[2] != nil {
		t.Errorf("%d are left", len(ps.byID))
	}
}
