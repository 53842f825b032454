package groupcoord

import (
	"context"
	"errors"
	"log/slog"
	"time"
	"unicode/utf16"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// Options configure a Service. Every field but Now and Registerer is required.
type Options struct {
	Groups        classic.Config
	Offsets       offsets.Config
	CommitTimeout time.Duration // offsets.commit.timeout.ms
	CheckInterval time.Duration // offsets.retention.check.interval.ms
	// NewMemberUUID draws the random part of a member id, in the usual text form of a UUID.
	NewMemberUUID func() string
	// NumPartitions is the number of partitions of __consumer_offsets, 0 while it does not exist.
	NumPartitions func() int
	// Topics tells topics that exist now.
	Topics Topics
	// Outdated reports whether this broker may have been replaced as a coordinator and can be expected to hear of it. It must not
	// block; nil: never.
	Outdated func() bool
	// CatchUp returns false where Outdated rests on more than metadata that have been decided and not applied here. Else it calls then
	// on a goroutine of its own, once they have been applied or did not come soon. It must not block; nil: never waits.
	CatchUp func(then func()) bool
	// Now is the clock; nil is time.Now.
	Now        func() time.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: no metrics
}

// Topics looks up topics as of now.
type Topics interface {
	TopicID(name string) (wire.UUID, bool)
}

// Service coordinates the groups of the shards led here. Safe for concurrent use.
type Service struct {
	o       Options
	rt      *coord.Runtime[*machine]
	metrics *metrics
}

// NewService makes a service without shards.
func NewService(o Options) *Service {
	if o.Outdated == nil {
		o.Outdated = func() bool { return false }
	}
	if o.CatchUp == nil {
		o.CatchUp = func(func()) bool { return false }
	}
	s := &Service{o: o, metrics: newMetrics(o.Registerer)}
	s.rt = coord.New(coord.Options[*machine]{
		Name:          "group coordinator",
		NewMachine:    func(wire.PartitionID) *machine { return newMachine(o.Groups, o.Offsets, o.Logger) },
		Loaded:        s.loaded,
		Effect:        s.effect,
		CommitTimeout: o.CommitTimeout,
		Now:           o.Now,
		Logger:        o.Logger,
		Registerer:    o.Registerer,
	})
	return s
}

// Elected starts the coordinator of an offsets partition that this broker leads from epoch on. It does not block.
func (s *Service) Elected(p wire.PartitionID, epoch wire.LeaderEpoch, log coord.Log) {
	s.rt.Elected(p, epoch, log)
}

// Resigned ends the coordinator of an offsets partition whose leadership of epoch (or before) is over.
func (s *Service) Resigned(p wire.PartitionID, epoch wire.LeaderEpoch) { s.rt.Resigned(p, epoch) }

// Close ends all coordinators and joins their goroutines; waiting requests get NOT_COORDINATOR.
func (s *Service) Close() { s.rt.Close() }

// WaitActive blocks until the coordinator of the group answers here, or ctx ends.
func (s *Service) WaitActive(ctx context.Context, group string) error {
	p, ok := s.Partition(group)
	if !ok {
		return coord.ErrNotHere
	}
	return s.rt.WaitActive(ctx, p)
}

// Partition is the offsets partition of a group; false while the topic does not exist.
func (s *Service) Partition(group string) (wire.PartitionID, bool) {
	n := s.o.NumPartitions()
	if n <= 0 {
		return 0, false
	}
	return PartitionFor(group, n), true
}

// PartitionFor is Kafka's place of a group: the absolute value of Java's string hash, modulo n, where the absolute
// value of the smallest int is 0.
func PartitionFor(group string, n int) wire.PartitionID {
	var h int32
	for _, r := range group {
		if r > 0xFFFF {
			hi, lo := utf16.EncodeRune(r)
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	if h < 0 {
		h = -h
	}
	if h < 0 {
		h = 0
	}
	return wire.PartitionID(int(h) % n)
}

// post runs op on the group's shard; done gets the body or the code that stands for the failure.
func (s *Service) post(group string, o op, done func(body any, err *kerr.Error)) {
	p, ok := s.Partition(group)
	if !ok {
		done(nil, kerr.NotCoordinator)
		return
	}
	s.rt.Post(p, func(m *machine, tok coord.Token, now time.Time) coord.Decision { return armed(o(m, tok, now)) },
		func(body any, err error) {
			if err != nil {
				done(nil, code(err))
				return
			}
			done(body, nil)
		})
}

// code maps failures of the runtime and of appends.
func code(err error) *kerr.Error {
	switch {
	case errors.Is(err, coord.ErrLoading):
		return kerr.CoordinatorLoadInProgress
	case errors.Is(err, coord.ErrNotHere), errors.Is(err, coord.ErrFailed):
		return kerr.NotCoordinator
	case errors.Is(err, coord.ErrUnknown), errors.Is(err, coord.ErrBusy):
		return kerr.CoordinatorNotAvailable
	}
	return classic.AppendError(err)
}

// effect logs what happened to groups.
func (s *Service) effect(_ wire.PartitionID, _ wire.LeaderEpoch, e coord.Effect) {
	if ev, ok := e.(classic.Event); ok {
		s.metrics.event(ev)
		s.o.Logger.Info(ev.What, "group", ev.Group, "generation", ev.Generation, "members", ev.Members, "reason", ev.Reason) //nolint:sloglint // one of the machine's fixed texts
	}
}

// loaded starts the sessions of the loaded members and the sweep.
func (s *Service) loaded(m *machine, _ coord.Token, now time.Time) coord.Decision {
	d := armed(m.groups.Loaded(now))
	d.Effects = append(d.Effects, s.sweepTimer(now))
	return d
}
