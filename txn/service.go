package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// retryDelay is how long the shard waits before it tries again to write that a transaction is complete.
const retryDelay = 500 * time.Millisecond

// Options configure a Service. Every field but Now is required.
type Options struct {
	State state.Config
	// CommitTimeout bounds how long an answer waits for its record to be committed; then it is unknown.
	CommitTimeout  time.Duration
	AbortInterval  time.Duration // transaction.abort.timed.out.transaction.cleanup.interval.ms
	ExpireInterval time.Duration // transaction.remove.expired.transaction.cleanup.interval.ms
	// NewProducerID draws a producer id that nobody else gets.
	NewProducerID func(ctx context.Context) (wire.ProducerID, error)
	// NumPartitions is the number of partitions of __transaction_state, 0 while it does not exist.
	NumPartitions func() int
	// PartitionFor hashes an id to one of n partitions, in Kafka's way.
	PartitionFor func(id string, n int) wire.PartitionID
	// Version is the finalised transaction.version, now.
	Version func() state.Version
	// Unsure reports whether this broker may have been replaced as a coordinator without its knowing. It must not block; nil: never.
	Unsure func() bool
	// Markers brings decided transactions to their partitions. The service owns it from here on.
	Markers *marker.Sender
	// Now is the clock; nil is time.Now.
	Now    func() time.Time
	Logger *slog.Logger
	// Registerer takes the metrics of the shards; nil: none.
	Registerer prometheus.Registerer
}

// Service coordinates the transactional ids of the shards led here. Safe for concurrent use.
type Service struct {
	o      Options
	rt     *coord.Runtime[*state.State]
	ctx    context.Context // of requests for producer ids
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup // requests for producer ids

	awaits awaits
}

// NewService makes a service without shards.
func NewService(o Options) *Service {
	if o.Unsure == nil {
		o.Unsure = func() bool { return false }
	}
	s := &Service{o: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.rt = coord.New(coord.Options[*state.State]{
		Name:          "transaction coordinator",
		NewMachine:    func(wire.PartitionID) *state.State { return state.New(o.State) },
		Loaded:        s.loaded,
		Effect:        s.effect,
		CommitTimeout: o.CommitTimeout,
		Now:           o.Now,
		Logger:        o.Logger,
		Registerer:    o.Registerer,
	})
	return s
}

// Elected starts the coordinator of a partition of __transaction_state that this broker leads from epoch on. It does
// not block.
func (s *Service) Elected(p wire.PartitionID, epoch wire.LeaderEpoch, log coord.Log) {
	s.rt.Elected(p, epoch, log)
}

// Resigned ends the coordinator of a partition whose leadership of epoch (or before) is over, and gives up its markers:
// the next leader owes them.
func (s *Service) Resigned(p wire.PartitionID, epoch wire.LeaderEpoch) {
	s.rt.Resigned(p, epoch)
	s.o.Markers.Cancel(p, epoch)
}

// Close ends all coordinators and joins the goroutines; waiting requests get NOT_COORDINATOR.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	s.o.Markers.Close()
	s.rt.Close()
}

// WaitActive blocks until the coordinator of the id answers here, or ctx ends.
func (s *Service) WaitActive(ctx context.Context, id string) error {
	p, ok := s.Partition(id)
	if !ok {
		return coord.ErrNotHere
	}
	return s.rt.WaitActive(ctx, p)
}

// Partition is the partition of __transaction_state of an id; false while the topic does not exist.
func (s *Service) Partition(id string) (wire.PartitionID, bool) {
	n := s.o.NumPartitions()
	if n <= 0 {
		return 0, false
	}
	return s.o.PartitionFor(id, n), true
}

type op = coord.Op[*state.State]

// post runs o on the id's shard; done gets the body or the code that stands for the failure.
func (s *Service) post(id string, o op, done func(body any, err *kerr.Error)) {
	p, ok := s.Partition(id)
	if !ok {
		done(nil, kerr.NotCoordinator)
		return
	}
	s.rt.Post(p, o, func(body any, err error) {
		if err != nil {
			done(nil, code(err))
			return
		}
		done(body, nil)
	})
}

// code maps failures of the runtime and of appends (Kafka: TransactionStateManager.appendTransactionToLog). A client
// that is told 15 or 16 does not know what became of its request; it asks again and gets what the log holds.
func code(err error) *kerr.Error {
	switch {
	case errors.Is(err, coord.ErrLoading):
		return kerr.CoordinatorLoadInProgress
	case errors.Is(err, coord.ErrNotHere), errors.Is(err, coord.ErrFailed):
		return kerr.NotCoordinator
	case errors.Is(err, coord.ErrUnknown), errors.Is(err, coord.ErrBusy):
		return kerr.CoordinatorNotAvailable
	}
	ke, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return kerr.NotCoordinator // the disk failed, the partition is going away
	}
	switch ke {
	case kerr.UnknownTopicOrPartition, kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend, kerr.RequestTimedOut:
		return kerr.CoordinatorNotAvailable
	case kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.FencedLeaderEpoch, kerr.UnknownLeaderEpoch:
		return kerr.NotCoordinator
	}
	return kerr.UnknownServerError
}

// replied turns the outcome of an operation whose body is a state.Reply into one.
func (s *Service) replied(body any, err *kerr.Error) state.Reply {
	if err != nil {
		return state.Reply{Err: err, Producer: state.NoProducer}
	}
	r := body.(state.Reply)
	if s.outdated(r.Err) {
		return state.Reply{Err: kerr.NotCoordinator, Producer: state.NoProducer}
	}
	return r
}

// outdated reports whether a refusal rests on what this coordinator remembers of a producer, while it may have been replaced
// without its knowing: its successor may have taken the producer further. What it does for a producer is in the log before it is
// answered, which one that was replaced cannot write.
func (s *Service) outdated(refusal *kerr.Error) bool {
	switch refusal {
	case kerr.ProducerFenced, kerr.InvalidProducerIDMapping, kerr.InvalidTxnState:
		return s.o.Unsure()
	}
	return false
}

// withID runs o without a producer id and, if the decision wants one, draws one and runs it again.
func (s *Service) withID(id string, o func(fresh wire.ProducerID) op, done func(state.Reply)) {
	s.post(id, o(wire.NoProducer), func(body any, err *kerr.Error) {
		r := s.replied(body, err)
		if !r.NeedsID {
			done(r)
			return
		}
		s.draw(func(fresh wire.ProducerID, err error) {
			if err != nil {
				s.o.Logger.Warn("no producer id", "txn_id", id, "err", err)
				code := kerr.CoordinatorNotAvailable
				if errors.Is(err, kerr.CoordinatorLoadInProgress) {
					code = kerr.CoordinatorLoadInProgress
				}
				done(state.Reply{Err: code, Producer: state.NoProducer})
				return
			}
			s.post(id, o(fresh), func(body any, err *kerr.Error) { done(s.replied(body, err)) })
		})
	})
}

// draw gets a producer id off the shard's goroutine, which must not wait for the controller.
func (s *Service) draw(done func(wire.ProducerID, error)) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		done(wire.NoProducer, context.Canceled)
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		ctx, cancel := context.WithTimeout(s.ctx, s.o.CommitTimeout)
		defer cancel()
		done(s.o.NewProducerID(ctx))
	}()
}

// InitProducerID fences older incarnations of a producer and gives the next one. r.Fresh and r.Cluster are filled in.
func (s *Service) InitProducerID(r state.InitRequest, done func(state.Reply)) {
	r.Cluster = s.o.Version()
	s.withID(r.ID, func(fresh wire.ProducerID) op {
		r := r
		r.Fresh = fresh
		return func(m *state.State, tok coord.Token, now time.Time) coord.Decision {
			return m.InitProducerID(tok, now, r)
		}
	}, done)
}

// AddPartitions begins or extends a transaction. r.Cluster is filled in.
func (s *Service) AddPartitions(r state.AddRequest, done func(*kerr.Error)) {
	r.Cluster = s.o.Version()
	s.post(r.ID, func(m *state.State, tok coord.Token, now time.Time) coord.Decision {
		return m.AddPartitions(tok, now, r)
	},
		func(body any, err *kerr.Error) { done(s.replied(body, err).Err) })
}

// Verify says which partitions are in a transaction.
func (s *Service) Verify(r state.AddRequest, done func(state.VerifyReply)) {
	s.post(r.ID, func(m *state.State, tok coord.Token, _ time.Time) coord.Decision { return m.Verify(tok, r) },
		func(body any, err *kerr.Error) {
			if err != nil {
				done(state.VerifyReply{Err: err})
				return
			}
			v := body.(state.VerifyReply)
			if s.outdated(v.Err) || len(v.Missing) > 0 && s.o.Unsure() {
				v = state.VerifyReply{Err: kerr.NotCoordinator}
			}
			done(v)
		})
}

// EndTxn commits or aborts. r.Fresh and r.Cluster are filled in.
func (s *Service) EndTxn(r state.EndRequest, done func(state.Reply)) {
	r.Cluster = s.o.Version()
	s.withID(r.ID, func(fresh wire.ProducerID) op {
		r := r
		r.Fresh = fresh
		return func(m *state.State, tok coord.Token, now time.Time) coord.Decision { return m.EndTxn(tok, now, r) }
	}, done)
}

// effect starts the markers of a decided transaction. It runs after the decision is committed.
func (s *Service) effect(p wire.PartitionID, epoch wire.LeaderEpoch, e coord.Effect) {
	m, ok := e.(state.SendMarkers)
	if !ok {
		return
	}
	s.o.Markers.Send(marker.Job{
		Shard: p, Epoch: epoch, TxnID: m.ID, Producer: m.Producer, Commit: m.Commit, Version: m.Version, Partitions: m.Partitions,
		Done: func() { s.rt.Internal(p, s.complete(m)) },
	})
}

// complete writes that all markers of m are there, until that is written or the shard is gone.
func (s *Service) complete(m state.SendMarkers) op {
	return func(st *state.State, _ coord.Token, now time.Time) coord.Decision {
		d := st.Complete(now, m, s.o.Version())
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			if err == nil {
				s.awaits.completed(m.ID)
				return nil, nil
			}
			return nil, []coord.Effect{coord.Timer[*state.State]{Key: "complete/" + m.ID, At: now.Add(retryDelay), Op: s.complete(m)}}
		}
		return d
	}
}
