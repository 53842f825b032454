package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/sim/history"
)

const (
	groupName    = "followers"
	groupMembers = 3
)

// group is a consumer group whose members come and go, and what they were told: whoever is given a partition begins at or
// after every offset whose commit was acknowledged before, and never after what was handed out.
type group struct {
	mu        sync.Mutex
	acked     []int64 // by partition: the highest acknowledged commit
	consumed  []int64 // by partition: the next offset after what was handed out
	commits   int
	assigned  int
	err       error
	perMember [groupMembers]map[int32]*claim
}

// claim is a partition that a member was given.
type claim struct {
	floor int64 // the first offset may not be less
	next  int64 // -1: nothing has come
}

func newGroup(partitions int32) *group {
	g := &group{acked: make([]int64, partitions), consumed: make([]int64, partitions)}
	for i := range g.perMember {
		g.perMember[i] = map[int32]*claim{}
	}
	return g
}

func (g *group) counts() (commits, assigned int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.commits, g.assigned
}

func (g *group) failLocked(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

// member joins, reads and commits, leaves, and joins again, until ctx ends.
func (g *group) member(ctx context.Context, client newClient, i int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 0x67726f7570+uint64(i)))
	for ctx.Err() == nil {
		cl, err := client(kgo.ConsumerGroup(groupName), kgo.ConsumeTopics(Plain), kgo.DisableAutoCommit(), kgo.SessionTimeout(6*time.Second),
			kgo.HeartbeatInterval(500*time.Millisecond), kgo.RebalanceTimeout(6*time.Second), kgo.FetchMaxWait(500*time.Millisecond),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, tps map[string][]int32) { g.given(i, tps[Plain]) }),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, tps map[string][]int32) { g.taken(i, tps[Plain]) }),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, tps map[string][]int32) { g.taken(i, tps[Plain]) }))
		if err != nil {
			return err
		}
		stay, cancel := context.WithTimeout(ctx, time.Duration(8+rng.IntN(20))*time.Second)
		for stay.Err() == nil {
			g.poll(stay, cl, i)
		}
		cancel()
		cl.AllowRebalance()
		cl.Close()
	}
	return nil
}

// poll reads once and commits what it has read.
func (g *group) poll(ctx context.Context, cl *kgo.Client, i int) {
	fetches := cl.PollFetches(ctx)
	defer cl.AllowRebalance()
	fetches.EachError(func(_ string, p int32, err error) {
		if ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			g.mu.Lock()
			defer g.mu.Unlock()
			if _, ok := errors.AsType[*kgo.ErrGroupSession](err); !ok {
				g.failLocked("partition %d: a member is told %w", p, err)
			}
		}
	})
	next := map[int32]kgo.EpochOffset{}
	fetches.EachRecord(func(r *kgo.Record) {
		g.took(i, r)
		next[r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
	})
	if len(next) == 0 {
		return
	}
	cl.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{Plain: next}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return
		}
		g.committed(next, resp)
	})
}

func (g *group) committed(next map[int32]kgo.EpochOffset, resp *kmsg.OffsetCommitResponse) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if kerr.ErrorForCode(p.ErrorCode) == nil {
				g.acked[p.Partition] = max(g.acked[p.Partition], next[p.Partition].Offset)
				g.commits++
			}
		}
	}
}

func (g *group) given(i int, partitions []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.assigned++
	for _, p := range partitions {
		g.perMember[i][p] = &claim{floor: g.acked[p], next: -1}
	}
}

func (g *group) taken(i int, partitions []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range partitions {
		delete(g.perMember[i], p)
	}
}

// took notes a record that a member was handed.
func (g *group) took(i int, r *kgo.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := r.Partition
	c := g.perMember[i][p]
	switch {
	case c == nil:
		g.failLocked("partition %d: member %d gets offset %d without having been given the partition", p, i, r.Offset)
		return
	case c.next >= 0 && r.Offset != c.next:
		g.failLocked("partition %d: member %d gets offset %d after %d", p, i, r.Offset, c.next-1)
	case c.next < 0 && r.Offset < c.floor:
		g.failLocked("partition %d: member %d begins at %d, and %d was committed before", p, i, r.Offset, c.floor)
	case c.next < 0 && r.Offset > g.consumed[p]:
		g.failLocked("partition %d: member %d begins at %d, and nobody has got what comes after %d", p, i, r.Offset, g.consumed[p])
	}
	c.next = r.Offset + 1
	g.consumed[p] = max(g.consumed[p], c.next)
}

// check waits until everything was handed out.
func (g *group) check(ctx context.Context, log map[int32][]history.Read) error {
	for {
		g.mu.Lock()
		err, behind := g.err, ""
		for p := range g.consumed {
			if n := int64(len(log[int32(p)])); g.consumed[p] < n {
				behind = fmt.Sprintf("partition %d: at %d of %d", p, g.consumed[p], n)
			}
		}
		g.mu.Unlock()
		if err != nil || behind == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("is stuck: %s", behind)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
