package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// tape is a machine that writes down what is replayed.
type tape struct{ lines []string }

func (t *tape) Replay(r coord.Record, at coord.Pos) error {
	value := "null"
	if r.Value != nil {
		value = string(r.Value)
	}
	t.lines = append(t.lines, fmt.Sprintf("%d %s=%s at %d producer %d txn %v", at.Offset, r.Key, value, at.Timestamp.UnixMilli(), at.ProducerID, at.Transactional))
	return nil
}

func (t *tape) ReplayMarker(id wire.ProducerID, epoch wire.ProducerEpoch, commit bool) error {
	t.lines = append(t.lines, fmt.Sprintf("marker %d/%d commit %v", id, epoch, commit))
	return nil
}

// A coordinator's log: callbacks in append order and only once committed, never while Append runs; what Load gives back
// is what was appended, markers included; leadership is reported in order.
func TestCoordinatorLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := memfs.New(time.Now)
		fs := faultfs.New(mem)
		g := newGate(fs)
		k := newKit(t, fs)
		var events []string
		k.o.Elected = func(p *Partition, e wire.LeaderEpoch) { events = append(events, fmt.Sprintf("elected %s %d", p.TP, e)) }
		k.o.Resigned = func(p *Partition, e wire.LeaderEpoch) {
			events = append(events, fmt.Sprintf("resigned %s %d", p.TP, e))
		}
		k.open()
		k.topic(image.OffsetsTopic, topicID(image.OffsetsTopic), 1)
		p := k.part(image.OffsetsTopic, 0)
		l := p.Log()
		at := time.UnixMilli(1234)
		var mu sync.Mutex
		var done []wire.Offset
		appending := false
		add := func(b coord.Batch) wire.Offset {
			t.Helper()
			b.Timestamp = at
			appending = true
			base, err := l.Append(0, b, func(end wire.Offset, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil || appending {
					t.Errorf("callback with %v while appending %v", err, appending)
				}
				done = append(done, end)
			})
			appending = false
			if err != nil {
				t.Fatal(err)
			}
			return base
		}
		rec := func(k, v string) coord.Record { return coord.Record{Key: []byte(k), Value: []byte(v)} }
		add(coord.Batch{Records: []coord.Record{rec("a", "1"), {Key: []byte("b")}}})
		guard, err := p.BeginTxn(9, 1, wire.NoSequence)
		if err != nil {
			t.Fatal(err)
		}
		add(coord.Batch{Records: []coord.Record{rec("c", "3")}, Producer: &coord.ProducerRef{ID: 9, Epoch: 1, Guard: guard}})
		if base := add(coord.Batch{Marker: &coord.Marker{ProducerRef: coord.ProducerRef{ID: 9, Epoch: 1}, Commit: true}}); base != 3 {
			t.Fatalf("marker at %d", base)
		}
		synctest.Wait()
		committed := false
		l.WaitCommitted(4, func(err error) { committed = err == nil })
		if len(done) != 0 || committed {
			t.Fatal("committed before any sync")
		}
		g.open.Store(true)
		g.pass <- struct{}{}
		synctest.Wait()
		if !slices.Equal(done, []wire.Offset{2, 3, 4}) || !committed {
			t.Fatalf("committed %v, %v", done, committed)
		}
		if o := p.Offsets(); o.LSO != 4 {
			t.Fatalf("last stable offset after the marker: %+v", o)
		}
		var m tape
		end, err := l.Load(context.Background(), &m)
		want := []string{"0 a=1 at 1234 producer -1 txn false", "1 b=null at 1234 producer -1 txn false", "2 c=3 at 1234 producer 9 txn true", "marker 9/1 commit true"}
		if err != nil || end != 4 || !slices.Equal(m.lines, want) {
			t.Fatalf("loaded to %d, %v: %q", end, err, m.lines)
		}
		if _, err := l.Append(7, coord.Batch{Records: []coord.Record{rec("x", "")}, Timestamp: at}, nil); !errors.Is(err, kerr.UnknownLeaderEpoch) {
			t.Fatalf("append under another epoch: %v", err)
		}
		// What is lost is reported as lost.
		g.open.Store(false)
		var lost error
		if _, err := l.Append(0, coord.Batch{Records: []coord.Record{rec("x", "")}, Timestamp: at}, func(_ wire.Offset, err error) { lost = err }); err != nil {
			t.Fatal(err)
		}
		k.apply(change(image.OffsetsTopic, 1)) // the same leader in a new epoch
		synctest.Wait()
		if !errors.Is(lost, kerr.NotLeaderForPartition) {
			t.Fatalf("append of the old epoch: %v", lost)
		}
		g.open.Store(true)
		g.pass <- struct{}{}
		k.apply(remove(image.OffsetsTopic))
		if want := []string{"elected __consumer_offsets-0 0", "resigned __consumer_offsets-0 0", "elected __consumer_offsets-0 1", "resigned __consumer_offsets-0 1"}; !slices.Equal(events, want) {
			t.Fatalf("events %q", events)
		}
		k.close()
	})
}
