package replica

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// inTxn makes a batch of one record of a producer's transaction.
func inTxn(id wire.ProducerID, epoch wire.ProducerEpoch, seq int32) []byte {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Transactional: true,
		Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}})
	b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
	out, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err)
	}
	return out
}

// txnKit is one partition and what producers and a coordinator do to it.
type txnKit struct {
	*kit
	p *Partition
}

func newTxnKit(t *testing.T) *txnKit {
	k := newKit(t, memfs.New(time.Now))
	k.open()
	t.Cleanup(k.close)
	k.topic("t", topicID("t"), 1)
	return &txnKit{k, k.part("t", 0)}
}

func (k *txnKit) begin(id wire.ProducerID, epoch wire.ProducerEpoch, seq int32) uint64 {
	k.t.Helper()
	g, err := k.p.BeginTxn(id, epoch, seq)
	if err != nil {
		k.t.Fatal(err)
	}
	return g
}

func (k *txnKit) send(id wire.ProducerID, epoch wire.ProducerEpoch, seq int32, a Admission, want error) {
	k.t.Helper()
	_, err := k.p.AppendTxn(k.validate(k.p, inTxn(id, epoch, seq)), a, 1)
	if !errors.Is(err, want) || want == nil && err != nil {
		k.t.Fatalf("producer %d/%d sequence %d: %v, want %v", id, epoch, seq, err, want)
	}
}

func (k *txnKit) mark(id wire.ProducerID, epoch wire.ProducerEpoch, coordinator int32, commit, v2 bool, want error) {
	k.t.Helper()
	done := make(chan error, 1)
	err := k.p.AppendMarker(coord.Marker{ProducerRef: coord.ProducerRef{ID: id, Epoch: epoch}, CoordinatorEpoch: coordinator, Commit: commit, V2: v2},
		func(err error) { done <- err })
	if err == nil {
		err = <-done
	}
	if !errors.Is(err, want) || want == nil && err != nil {
		k.t.Fatalf("marker %d/%d: %v, want %v", id, epoch, err, want)
	}
}

// TestGuards shows the rules of KIP-890's verification: without a guard, or with one that a marker, another leader or
// another epoch has taken away, or that is spent, nothing is appended (scenario T2).
func TestGuards(t *testing.T) {
	t.Run("no guard", func(t *testing.T) {
		k := newTxnKit(t)
		k.send(7, 0, 0, Admission{}, kerr.InvalidTxnState)
		k.send(7, 0, 0, Admission{Guard: 1}, kerr.InvalidTxnState)
		k.send(7, 0, 0, Admission{Unchecked: true}, nil)
	})
	t.Run("one batch spends it, the open transaction needs none", func(t *testing.T) {
		k := newTxnKit(t)
		g := k.begin(7, 0, 0)
		k.send(7, 0, 0, Admission{Guard: g}, nil)
		if again := k.begin(7, 0, 1); again != 0 {
			t.Fatalf("guard %d within an open transaction", again)
		}
		k.send(7, 0, 1, Admission{}, nil)
		k.mark(7, 0, 1, true, false, nil)
		k.send(7, 0, 2, Admission{}, kerr.InvalidTxnState)
		k.send(7, 0, 2, Admission{Guard: g}, kerr.InvalidTxnState)
		k.send(7, 0, 2, Admission{Guard: k.begin(7, 0, 2)}, nil)
	})
	t.Run("a marker takes it", func(t *testing.T) {
		k := newTxnKit(t)
		g := k.begin(7, 0, 0)
		k.mark(7, 0, 1, false, false, nil)
		k.send(7, 0, 0, Admission{Guard: g}, kerr.InvalidTxnState)
	})
	t.Run("a new leader epoch takes it", func(t *testing.T) {
		k := newTxnKit(t)
		g := k.begin(7, 0, 0)
		k.apply(change("t", 1))
		k.send(7, 0, 0, Admission{Guard: g}, kerr.InvalidTxnState)
		k.send(7, 0, 0, Admission{Guard: k.begin(7, 0, 0)}, nil)
	})
	t.Run("a new producer epoch takes it", func(t *testing.T) {
		k := newTxnKit(t)
		old := k.begin(7, 0, 0)
		g := k.begin(7, 1, 0)
		k.send(7, 0, 0, Admission{Guard: old}, kerr.InvalidTxnState)
		k.send(7, 1, 0, Admission{Guard: old}, kerr.InvalidTxnState)
		k.send(7, 1, 0, Admission{Guard: k.begin(7, 0, 0)}, kerr.InvalidTxnState)
		k.send(7, 1, 0, Admission{Guard: g}, nil)
	})
	t.Run("the lowest sequence that was offered comes first", func(t *testing.T) {
		k := newTxnKit(t)
		g := k.begin(7, 0, 3)
		if same := k.begin(7, 0, 4); same != g {
			t.Fatalf("guards %d and %d for one transaction", g, same)
		}
		k.send(7, 0, 4, Admission{Guard: g}, kerr.OutOfOrderSequenceNumber)
		k.send(7, 0, 3, Admission{Guard: g}, nil)
		k.send(7, 0, 4, Admission{Guard: g}, nil)
	})
	t.Run("a late copy of what is in the log keeps nothing out", func(t *testing.T) {
		k := newTxnKit(t)
		k.send(7, 0, 0, Admission{Guard: k.begin(7, 0, 0)}, nil)
		k.send(7, 0, 1, Admission{}, nil)
		k.mark(7, 0, 1, true, false, nil)
		for seq := range int32(2) {
			a, err := k.p.AppendTxn(k.validate(k.p, inTxn(7, 0, seq)), Admission{Guard: k.begin(7, 0, seq)}, 1)
			if err != nil || !a.Duplicate {
				t.Fatalf("a copy of sequence %d: %+v, %v", seq, a, err)
			}
		}
		k.send(7, 0, 3, Admission{Guard: k.begin(7, 0, 3)}, kerr.OutOfOrderSequenceNumber)
		k.send(7, 0, 2, Admission{Guard: k.begin(7, 0, 2)}, nil)
		k.send(7, 0, 3, Admission{}, nil)
	})
	t.Run("v2 begins at sequence 0", func(t *testing.T) {
		k := newTxnKit(t)
		k.send(7, 0, 3, Admission{Guard: k.begin(7, 0, 3), V2: true}, kerr.OutOfOrderSequenceNumber)
		k.send(7, 0, 0, Admission{Guard: k.begin(7, 0, 0), V2: true}, nil)
	})
	t.Run("a duplicate is answered after the end", func(t *testing.T) {
		k := newTxnKit(t)
		k.send(7, 0, 0, Admission{Guard: k.begin(7, 0, 0)}, nil)
		k.mark(7, 0, 1, true, false, nil)
		a, err := k.p.AppendTxn(k.validate(k.p, inTxn(7, 0, 0)), Admission{}, 1)
		if err != nil || !a.Duplicate || a.First != 0 {
			t.Fatalf("%+v, %v", a, err)
		}
	})
}

// TestMarkers shows by which epochs a partition judges markers.
func TestMarkers(t *testing.T) {
	k := newTxnKit(t)
	k.send(7, 3, 0, Admission{Guard: k.begin(7, 3, 0)}, nil)
	if o := k.p.Offsets(); o.LSO != 0 {
		t.Fatalf("LSO %d with an open transaction", o.LSO)
	}
	k.mark(7, 2, 5, true, false, kerr.InvalidProducerEpoch)
	k.mark(7, 3, 5, true, true, kerr.InvalidProducerEpoch) // v2 would carry 4
	k.mark(7, 4, 5, true, true, nil)
	if o := k.p.Offsets(); o.LSO != 2 || o.HW != 2 {
		t.Fatalf("offsets %+v after the marker is answered, want LSO and HW 2", o)
	}
	k.mark(7, 4, 4, true, true, kerr.TransactionCoordinatorFenced)
	k.mark(7, 4, 5, true, true, nil)                            // a repetition
	k.send(7, 3, 1, Admission{}, kerr.InvalidTxnState)          // late, without a guard
	k.send(7, 3, 1, Admission{Guard: 99}, kerr.InvalidTxnState) // and with a stale one
	k.send(7, 4, 0, Admission{Guard: k.begin(7, 4, 0), V2: true}, nil)
	k.mark(7, 4, 5, true, true, kerr.InvalidProducerEpoch) // the repetition, delayed into the next transaction (T1)
	k.mark(7, 4, 6, false, false, nil)                     // under v1 nothing tells them apart
	if o := k.p.Offsets(); o.LSO != o.HW || o.HW != 5 {
		t.Fatalf("offsets %+v, want LSO and HW 5", o)
	}
	k.mark(8, 0, 1, true, false, nil) // of a producer that is not known
}

// A node that starts again after a crash gives a committed transaction to readers at once: its marker is below the high
// watermark that was checkpointed, so nothing has to be waited for (scenario T3).
func TestLSOAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		k := &txnKit{kit: newKit(t, mem)}
		k.open()
		k.topic("t", topicID("t"), 1)
		k.p = k.part("t", 0)
		k.send(7, 0, 0, Admission{Guard: k.begin(7, 0, 0)}, nil)
		k.mark(7, 0, 1, true, false, nil)
		time.Sleep(6 * time.Second) // the high watermark is checkpointed
		synctest.Wait()
		crashed := mem.Crash(memfs.Lose, 1)
		k.close()
		again := k.reopen(crashed)
		if o := again.part("t", 0).Offsets(); o.HW != 2 || o.LSO != 2 {
			t.Errorf("offsets %+v after the crash, want HW and LSO 2", o)
		}
		again.close()
	})
}

// A leader that may have been replaced calls no producer and no marker wrong by what its log holds; what is there already it knows.
func TestUnsureLeaderRefusesNobody(t *testing.T) {
	plain := func(id wire.ProducerID, epoch wire.ProducerEpoch, seq int32) []byte {
		b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}})
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte("v")})
		out, _, err := b.Build(nil, nil)
		if err != nil {
			panic(err)
		}
		return out
	}
	k := newTxnKit(t)
	unsure := false
	k.p.world.unsure = func() bool { return unsure }
	write := func(data []byte, a Admission) error {
		_, err := k.p.AppendTxn(k.validate(k.p, data), a, 1)
		return err
	}
	mark := func(epoch wire.ProducerEpoch, coordinator int32) error {
		return k.p.AppendMarker(coord.Marker{ProducerRef: coord.ProducerRef{ID: 7, Epoch: epoch}, CoordinatorEpoch: coordinator}, func(error) {})
	}
	k.send(7, 5, 0, Admission{Guard: k.begin(7, 5, 0)}, nil)
	k.mark(7, 5, 3, true, false, nil)
	if err := errors.Join(write(plain(8, 5, 0), Admission{}), write(plain(8, 5, 1), Admission{})); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		what string
		ask  func() error
		sure error
	}{
		{"a sequence that is not the next", func() error { return write(plain(8, 5, 9), Admission{}) }, kerr.OutOfOrderSequenceNumber},
		{"an epoch that does not begin at 0", func() error { return write(plain(8, 6, 4), Admission{}) }, kerr.OutOfOrderSequenceNumber},
		{"an older epoch", func() error { return write(plain(8, 4, 0), Admission{}) }, kerr.InvalidProducerEpoch},
		{"a transaction that is not open", func() error { return write(inTxn(7, 5, 1), Admission{}) }, kerr.InvalidTxnState},
		{"a marker of an older epoch", func() error { return mark(4, 3) }, kerr.InvalidProducerEpoch},
		{"a marker of an older coordinator", func() error { return mark(5, 2) }, kerr.TransactionCoordinatorFenced},
	} {
		for _, unsure = range []bool{false, true} {
			want := tc.sure
			if unsure {
				want = kerr.NotLeaderForPartition
			}
			if err := tc.ask(); !errors.Is(err, want) || unsure && errors.Is(err, tc.sure) {
				t.Errorf("%s, unsure %v: %v, want %v", tc.what, unsure, err, want)
			}
		}
	}
	if a, err := k.p.AppendTxn(k.validate(k.p, plain(8, 5, 1)), Admission{}, 1); err != nil || !a.Duplicate {
		t.Errorf("a batch that is there, from a leader that is not sure: %+v, %v", a, err)
	}
}
