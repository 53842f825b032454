package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// endingTxns is a coordinator whose last transaction is being completed until some time has passed. Then it says so, if
// it tells.
type endingTxns struct {
	until time.Time
	tells bool
	mu    sync.Mutex
	asked []time.Duration // before (negative) or after the completion
	wait  []chan struct{}
}

func newEndingTxns(takes time.Duration, tells bool) *endingTxns {
	e := &endingTxns{until: time.Now().Add(takes), tells: tells}
	time.AfterFunc(takes, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, ch := range e.wait {
			close(ch)
		}
		e.wait = nil
	})
	return e
}

func (e *endingTxns) AddPartitions(_ state.AddRequest, done func(*kerr.Error)) {
	e.mu.Lock()
	e.asked = append(e.asked, time.Since(e.until))
	e.mu.Unlock()
	if time.Now().Before(e.until) {
		done(kerr.ConcurrentTransactions)
		return
	}
	done(nil)
}

func (e *endingTxns) Verify(state.AddRequest, func(state.VerifyReply)) {
	panic("a client of version 2 has its partitions added")
}

func (e *endingTxns) Completed(string) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tells {
		e.wait = append(e.wait, ch)
	}
	return ch, func() {}
}

// A write that follows the end of a transaction meets its completion: the broker asks the coordinator again, as soon as it
// is told of the completion or else every add.partitions.to.txn.retry.backoff.ms, and the client sees nothing of it
// unless that takes longer than add.partitions.to.txn.retry.backoff.max.ms; then it is told 51.
func TestConcurrentTransactionsIsRetriedInTheBroker(t *testing.T) {
	const retry, retryMax = 20 * time.Millisecond, 100 * time.Millisecond
	for _, tt := range []struct {
		name  string
		takes time.Duration
		tells bool
		want  *kerr.Error
		asked int // questions; 0: not counted
		last  time.Duration
	}{
		{"nothing is being completed", 0, true, nil, 1, 0},
		{"completed and told", 13 * time.Millisecond, true, nil, 3, 0},
		{"completed elsewhere", 50 * time.Millisecond, false, nil, 0, 10 * time.Millisecond},
		{"not completed in time", 10 * time.Second, true, kerr.ConcurrentTransactions, 0, 100*time.Millisecond - 10*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newDataKit(t)
				defer k.close()
				k.topic("t", 1)
				txns := newEndingTxns(tt.takes, tt.tells)
				e := &enroller{txns: txns, images: k, retry: retry, retryMax: retryMax}
				guards := 0
				got := e.enroll(context.Background(), state.AddRequest{ID: "tx", Client: state.V2}, func() []wire.TopicPartition {
					guards++
					return []wire.TopicPartition{tp("t", 0)}
				})
				if got.err != tt.want {
					t.Errorf("enrolled: %v, want %v", got.err, tt.want)
				}
				if guards != len(txns.asked) {
					t.Errorf("%d guards for %d questions: a guard from before the marker admits nothing", guards, len(txns.asked))
				}
				if n := len(txns.asked); tt.asked > 0 && n != tt.asked {
					t.Errorf("asked %d times, want %d: %v", n, tt.asked, txns.asked)
				}
				if last := txns.asked[len(txns.asked)-1]; last < 0 != (tt.want != nil) || last > tt.last+time.Millisecond {
					t.Errorf("asked at %v, want the last at %v", txns.asked, tt.last)
				}
			})
		})
	}
}

// The code that ends the retries is told to clients that know it, those of Produce v12 and TxnOffsetCommit v5; older ones
// are told what makes them send again.
func TestConcurrentTransactionsAsAClientIsTold(t *testing.T) {
	for version, want := range map[int16]error{11: kerr.NotEnoughReplicas, 12: kerr.ConcurrentTransactions} {
		r := &produceRun{req: &server.Request{Version: version}}
		if got := r.refusedBy(enrolled{err: kerr.ConcurrentTransactions}, tp("t", 0), false); !errors.Is(got, want) {
			t.Errorf("Produce v%d: %v, want %v", version, got, want)
		}
	}
	var codes []int16
	for version := range int16(7) {
		codes = append(codes, (txnOffsetCommit{}).code(kerr.ConcurrentTransactions, version))
	}
	if want := []int16{15, 15, 15, 15, 15, 51, 51}; !slices.Equal(codes, want) {
		t.Errorf("TxnOffsetCommit: %v, want %v", codes, want)
	}
}

// A coordinator that can't tell makes a producer send again: to the same leader, or, where that may lead no more, to whoever leads.
func TestProduceWhoseCoordinatorCantTell(t *testing.T) {
	for _, err := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator} {
		for version := int16(9); version <= 13; version++ {
			r := &produceRun{req: &server.Request{Version: version}}
			for unsure, want := range map[bool]error{false: kerr.NotEnoughReplicas, true: kerr.NotLeaderForPartition} {
				if got := r.refusedBy(enrolled{err: err}, tp("t", 0), unsure); !errors.Is(got, want) {
					t.Errorf("Produce v%d after %s, unsure %v: %v, want %v", version, err.Message, unsure, got, want)
				}
			}
		}
	}
}

// meddlingTxns is a coordinator that says yes, after something has happened to the partition.
type meddlingTxns struct {
	addedTxns
	meddle func()
}

func (m *meddlingTxns) AddPartitions(r state.AddRequest, done func(*kerr.Error)) {
	if f := m.meddle; f != nil {
		m.meddle = nil
		f()
	}
	m.addedTxns.AddPartitions(r, done)
}

// A guard that is gone by the time of the append, though the coordinator has said yes, is no fault of the producer's: a
// second copy of the last transaction's marker has come late, or the partition is led in another epoch. The producer is
// told what makes it send again, and the coordinator is asked again.
func TestLostGuardIsAskedForAgain(t *testing.T) {
	for name, meddle := range map[string]func(k *dataKit){
		"by a repeated marker": func(k *dataKit) {
			p, _ := k.ByName("t", 0)
			marked := make(chan error, 1)
			err := p.AppendMarker(coord.Marker{ProducerRef: coord.ProducerRef{ID: 5}, Commit: true, V2: true}, func(err error) { marked <- err })
			if err == nil {
				err = <-marked
			}
			if err != nil {
				k.t.Fatal(err)
			}
		},
		"by a new leader epoch": func(k *dataKit) {
			k.apply(electLeader("t", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newDataKit(t)
			defer k.close()
			k.topic("t", 1)
			txns := &meddlingTxns{meddle: func() { meddle(k) }}
			e := &enroller{txns: txns, images: k}
			if got, want := k.produceTxn(e, "t"), []int16{kerr.NotEnoughReplicas.Code}; !slices.Equal(got, want) {
				t.Errorf("codes %v, want %v", got, want)
			}
			if got, want := k.produceTxn(e, "t"), []int16{0}; !slices.Equal(got, want) {
				t.Errorf("sent again: codes %v, want %v", got, want)
			}
			if n := len(txns.added); n != 2 {
				t.Errorf("the coordinator was asked %d times, want 2", n)
			}
		})
	}
}
