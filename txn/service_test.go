package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// stateLog is a partition of __transaction_state. While it is held nothing is committed.
type stateLog struct {
	mu        sync.Mutex
	records   []coord.Record
	committed int
	held      bool
	waiting   []func(error)
}

func (l *stateLog) Append(_ wire.LeaderEpoch, b coord.Batch, done func(wire.Offset, error)) (wire.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := wire.Offset(len(l.records))
	l.records = append(l.records, b.Records...)
	end := wire.Offset(len(l.records))
	report := func(err error) { done(end, err) }
	if l.held {
		l.waiting = append(l.waiting, report)
		return base, nil
	}
	l.committed = len(l.records)
	time.AfterFunc(0, func() { report(nil) })
	return base, nil
}

func (l *stateLog) Load(_ context.Context, m coord.Machine) (wire.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range l.records {
		if err := m.Replay(r, coord.Pos{Offset: wire.Offset(i)}); err != nil {
			return 0, err
		}
	}
	return wire.Offset(len(l.records)), nil
}

func (l *stateLog) WaitCommitted(_ wire.Offset, done func(error)) { done(nil) }

func (l *stateLog) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// release commits what was held back, or loses it: then the log is what it was.
func (l *stateLog) release(lost error) {
	l.mu.Lock()
	if lost != nil {
		l.records = l.records[:l.committed]
	}
	l.committed, l.held = len(l.records), false
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, report := range waiting {
		report(lost)
	}
}

// tombstones counts the records without a value.
func (l *stateLog) tombstones() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		if r.Value == nil {
			n++
		}
	}
	return n
}

// txnsOf is a service that leads one shard, and the markers that it has sent.
type txnsOf struct {
	*Service
	t       *testing.T
	log     *stateLog
	epoch   wire.LeaderEpoch
	unsure  atomic.Bool
	mu      sync.Mutex
	markers []string
}

const (
	testCommitTimeout = 5 * time.Second
	testExpiration    = time.Hour
	testPartition     = "t-0"
)

func newTxns(t *testing.T) *txnsOf {
	k := &txnsOf{t: t, log: &stateLog{}, epoch: 1}
	next := wire.ProducerID(999)
	k.Service = NewService(Options{
		State:         state.Config{MaxTimeoutMs: 900_000, Expiration: testExpiration},
		CommitTimeout: testCommitTimeout, AbortInterval: time.Second, ExpireInterval: time.Minute,
		NewProducerID: func(context.Context) (wire.ProducerID, error) { next++; return next, nil },
		NumPartitions: func() int { return 1 }, PartitionFor: func(string, int) wire.PartitionID { return 0 },
		Version: func() state.Version { return state.V2 },
		Unsure:  k.unsure.Load,
		Markers: marker.New(marker.Options{
			Leader:      func(wire.TopicPartition) (wire.BrokerID, bool) { return 1, true },
			BrokerEpoch: func() wire.BrokerEpoch { return 1 },
			Write:       k.mark, Logger: slog.New(slog.DiscardHandler),
		}),
		Logger: slog.New(slog.DiscardHandler),
	})
	k.Elected(0, k.epoch, k.log)
	synctest.Wait()
	return k
}

func (k *txnsOf) mark(_ wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	k.mu.Lock()
	for _, m := range req.Markers {
		out := kmsg.NewWriteTxnMarkersResponseMarker()
		out.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				k.markers = append(k.markers, fmt.Sprintf("%s-%d commit=%v", t.Topic, p, m.Committed))
				rt.Partitions = append(rt.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p})
			}
			out.Topics = append(out.Topics, rt)
		}
		resp.Markers = append(resp.Markers, out)
	}
	k.mu.Unlock()
	done(resp)
}

func (k *txnsOf) sent() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.markers)
}

func (k *txnsOf) init(id string) state.Reply {
	k.t.Helper()
	got := make(chan state.Reply, 1)
	k.InitProducerID(state.InitRequest{ID: id, TimeoutMs: 60_000, Fresh: wire.NoProducer}, func(r state.Reply) { got <- r })
	return <-got
}

// begin gives a producer with a transaction open in one partition.
func (k *txnsOf) begin(id string, client state.Version) state.Producer {
	k.t.Helper()
	r := k.init(id)
	if r.Err != nil {
		k.t.Fatal(r.Err)
	}
	added := make(chan *kerr.Error, 1)
	k.AddPartitions(state.AddRequest{ID: id, Producer: r.Producer, Client: client, Partitions: []wire.TopicPartition{{Topic: "t"}}},
		func(err *kerr.Error) { added <- err })
	if err := <-added; err != nil {
		k.t.Fatal(err)
	}
	return r.Producer
}

func (k *txnsOf) end(id string, p state.Producer, commit bool, client state.Version) *kerr.Error {
	got := make(chan state.Reply, 1)
	k.EndTxn(state.EndRequest{ID: id, Producer: p, Commit: commit, Client: client, Fresh: wire.NoProducer}, func(r state.Reply) { got <- r })
	return (<-got).Err
}

func (k *txnsOf) ids() (ids []string) {
	k.t.Helper()
	got := make(chan []Listed, 1)
	k.List(state.Filter{LongerMs: -1}, func(found []Listed, err *kerr.Error) {
		if err != nil {
			k.t.Error(err)
		}
		got <- found
	})
	for _, l := range <-got {
		ids = append(ids, l.ID)
	}
	return ids
}

// A decision that is not committed in time is answered as unknown (15), and no marker is sent for it. Who asks again gets
// the outcome that the log holds in the end: the first one if its record was committed, else what is asked for now. The
// other outcome is refused once there is one.
func TestUnknownOutcome(t *testing.T) {
	for _, client := range []state.Version{state.V0, state.V2} {
		for _, commit := range []bool{true, false} {
			name := fmt.Sprintf("client v%d commit=%v", client, commit)
			want := []string{fmt.Sprintf("%s commit=%v", testPartition, commit)}
			t.Run(name+" is committed late", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := newTxns(t)
					defer k.Close()
					p := k.begin("tx", client)
					k.log.hold()
					if err := k.end("tx", p, commit, client); err != kerr.CoordinatorNotAvailable {
						t.Fatalf("while the record is not committed: %v, want %v", err, kerr.CoordinatorNotAvailable)
					}
					if m := k.sent(); len(m) > 0 {
						t.Fatalf("markers %q before the decision is committed", m)
					}
					k.log.release(nil)
					time.Sleep(time.Second)
					if err := k.end("tx", p, commit, client); err != nil {
						t.Errorf("the same end again: %v", err)
					}
					if err := k.end("tx", p, !commit, client); err != kerr.InvalidTxnState {
						t.Errorf("the other end: %v, want %v", err, kerr.InvalidTxnState)
					}
					if m := k.sent(); !slices.Equal(m, want) {
						t.Errorf("markers %q, want %q", m, want)
					}
				})
			})
			t.Run(name+" is lost", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := newTxns(t)
					defer k.Close()
					p := k.begin("tx", client)
					k.log.hold()
					if err := k.end("tx", p, !commit, client); err != kerr.CoordinatorNotAvailable {
						t.Fatalf("while the record is not committed: %v, want %v", err, kerr.CoordinatorNotAvailable)
					}
					k.Resigned(0, k.epoch) // the next coordinator's log does not have it
					k.log.release(kerr.NotLeaderForPartition)
					k.epoch++
					k.Elected(0, k.epoch, k.log)
					synctest.Wait()
					if err := k.end("tx", p, commit, client); err != nil {
						t.Errorf("the other end under the next coordinator: %v", err)
					}
					time.Sleep(time.Second)
					if m := k.sent(); !slices.Equal(m, want) {
						t.Errorf("markers %q, want %q", m, want)
					}
				})
			})
		}
	}
}

// A coordinator that may have been replaced refuses nobody by what it remembers: its successor may know better. What makes a client
// ask again, and what is wrong with the request itself, it says as before.
func TestUnsureCoordinatorRefusesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTxns(t)
		defer k.Close()
		p := k.begin("tx", state.V0)
		newer, other := state.Producer{ID: p.ID, Epoch: p.Epoch + 1}, state.Producer{ID: p.ID + 99}
		add := func(p state.Producer) *kerr.Error {
			got := make(chan *kerr.Error, 1)
			k.AddPartitions(state.AddRequest{ID: "tx", Producer: p, Partitions: []wire.TopicPartition{{Topic: "u"}}}, func(err *kerr.Error) { got <- err })
			return <-got
		}
		verify := func(p state.Producer, topic string) *kerr.Error {
			got := make(chan state.VerifyReply, 1)
			k.Verify(state.AddRequest{ID: "tx", Producer: p, Partitions: []wire.TopicPartition{{Topic: topic}}}, func(v state.VerifyReply) { got <- v })
			v := <-got
			if v.Err == nil && len(v.Missing) > 0 {
				return kerr.TransactionAbortable // as the partition's producer is told
			}
			return v.Err
		}
		init := func(expected state.Producer, timeout int32) *kerr.Error {
			got := make(chan state.Reply, 1)
			k.InitProducerID(state.InitRequest{ID: "tx", TimeoutMs: timeout, Expected: &expected, Fresh: wire.NoProducer}, func(r state.Reply) { got <- r })
			return (<-got).Err
		}
		k.begin("idle", state.V0)
		idle := k.init("new").Producer
		for _, tc := range []struct {
			what       string
			ask        func() *kerr.Error
			sure, less *kerr.Error
		}{
			{"AddPartitionsToTxn of a newer epoch", func() *kerr.Error { return add(newer) }, kerr.ProducerFenced, kerr.NotCoordinator},
			{"AddPartitionsToTxn of another id", func() *kerr.Error { return add(other) }, kerr.InvalidProducerIDMapping, kerr.NotCoordinator},
			{"EndTxn of a newer epoch", func() *kerr.Error { return k.end("tx", newer, true, state.V0) }, kerr.ProducerFenced, kerr.NotCoordinator},
			{"EndTxn v2 of a newer epoch", func() *kerr.Error { return k.end("tx", newer, true, state.V2) }, kerr.ProducerFenced, kerr.NotCoordinator},
			{"EndTxn of another id", func() *kerr.Error { return k.end("tx", other, true, state.V0) }, kerr.InvalidProducerIDMapping, kerr.NotCoordinator},
			{"EndTxn of nothing", func() *kerr.Error { return k.end("new", idle, true, state.V0) }, kerr.InvalidTxnState, kerr.NotCoordinator},
			{"Verify of a newer epoch", func() *kerr.Error { return verify(newer, "t") }, kerr.ProducerFenced, kerr.NotCoordinator},
			{"Verify of another partition", func() *kerr.Error { return verify(p, "u") }, kerr.TransactionAbortable, kerr.NotCoordinator},
			{"Verify", func() *kerr.Error { return verify(p, "t") }, nil, nil},
			{"InitProducerId from a newer epoch", func() *kerr.Error { return init(newer, 60_000) }, kerr.ProducerFenced, kerr.NotCoordinator},
			{"InitProducerId with a wrong timeout", func() *kerr.Error { return init(p, 0) }, kerr.InvalidTransactionTimeout, kerr.InvalidTransactionTimeout},
		} {
			for unsure, want := range map[bool]*kerr.Error{false: tc.sure, true: tc.less} {
				k.unsure.Store(unsure)
				if got := tc.ask(); got != want {
					t.Errorf("%s, unsure %v: %v, want %v", tc.what, unsure, got, want)
				}
			}
		}
	})
}

// A transaction that runs out of time is aborted, and its producer is fenced; an id that nobody uses is forgotten after
// transactional.id.expiration.ms, with a tombstone, and not before; one that was used meanwhile stays.
func TestSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTxns(t)
		defer k.Close()
		late := k.begin("late", state.V2)
		if err := k.init("idle").Err; err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if m := k.sent(); len(m) > 0 {
			t.Fatalf("markers %q before the timeout", m)
		}
		time.Sleep(3 * time.Second)
		if m, want := k.sent(), []string{testPartition + " commit=false"}; !slices.Equal(m, want) {
			t.Fatalf("markers %q after the timeout, want %q", m, want)
		}
		if err := k.end("late", late, true, state.V2); err != kerr.InvalidTxnState && err != kerr.ProducerFenced {
			t.Errorf("a commit after the timeout: %v", err)
		}
		time.Sleep(testExpiration - 2*time.Minute)
		if n := k.log.tombstones(); n != 0 {
			t.Fatalf("%d ids are forgotten too soon", n)
		}
		k.begin("used", state.V2)
		time.Sleep(4 * time.Minute)
		if ids, want := k.ids(), []string{"used"}; !slices.Equal(ids, want) || k.log.tombstones() != 2 {
			t.Errorf("ids %q and %d tombstones, want %q and 2", ids, k.log.tombstones(), want)
		}
		if err := k.end("idle", state.Producer{ID: 1001}, true, state.V2); err != kerr.InvalidProducerIDMapping {
			t.Errorf("a commit under a forgotten id: %v", err)
		}
	})
}

// What the runtime and the log say becomes the codes of Kafka's clients.
func TestCodes(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want *kerr.Error
	}{
		{coord.ErrLoading, kerr.CoordinatorLoadInProgress}, {coord.ErrNotHere, kerr.NotCoordinator}, {coord.ErrFailed, kerr.NotCoordinator},
		{coord.ErrUnknown, kerr.CoordinatorNotAvailable}, {coord.ErrBusy, kerr.CoordinatorNotAvailable},
		{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable}, {kerr.NotEnoughReplicasAfterAppend, kerr.CoordinatorNotAvailable},
		{kerr.RequestTimedOut, kerr.CoordinatorNotAvailable}, {kerr.UnknownTopicOrPartition, kerr.CoordinatorNotAvailable},
		{kerr.NotLeaderForPartition, kerr.NotCoordinator}, {kerr.KafkaStorageError, kerr.NotCoordinator},
		{fmt.Errorf("append: %w", kerr.FencedLeaderEpoch), kerr.NotCoordinator}, {errors.New("the disk is gone"), kerr.NotCoordinator},
		{kerr.MessageTooLarge, kerr.UnknownServerError},
	} {
		if got := code(tt.err); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.err, got, tt.want)
		}
	}
}
