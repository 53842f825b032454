package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kajamq/kaja/sim/history"
)

// follower reads a topic as it grows. What it has read must be there in the end as it was.
type follower struct {
	topic string
	mu    sync.Mutex
	read  map[int32][]string // the values, by offset
	err   error
}

func newFollower(topic string) *follower { return &follower{topic: topic, read: map[int32][]string{}} }

type newClient func(...kgo.Opt) (*kgo.Client, error)

func (f *follower) run(ctx context.Context, client newClient) error {
	cl, err := client(kgo.ConsumeTopics(f.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachError(func(_ string, p int32, err error) {
			if ctx.Err() == nil {
				f.fail("partition %d: a reader is told %w", p, err)
			}
		})
		fetches.EachRecord(f.take)
	}
	return nil
}

func (f *follower) take(r *kgo.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want := int64(len(f.read[r.Partition])); r.Offset != want && f.err == nil {
		f.err = fmt.Errorf("partition %d: a reader gets offset %d, its next one was %d", r.Partition, r.Offset, want)
	}
	f.read[r.Partition] = append(f.read[r.Partition], string(r.Value))
}

func (f *follower) fail(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = fmt.Errorf(format, args...)
	}
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.read {
		n += len(r)
	}
	return n
}

// check waits until everything was read, and compares.
func (f *follower) check(ctx context.Context, log map[int32][]history.Read) error {
	for {
		behind, err := f.compare(log)
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

func (f *follower) compare(log map[int32][]history.Read) (behind string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return "", f.err
	}
	for p, now := range log {
		then := f.read[p]
		for i, v := range then {
			switch {
			case i >= len(now):
				return "", fmt.Errorf("partition %d: %q was read at %d, which is not there", p, v, i)
			case now[i].Value != v:
				return "", fmt.Errorf("partition %d: %q was read at %d, now it is %q", p, v, i, now[i].Value)
			}
		}
		if len(then) < len(now) {
			behind = fmt.Sprintf("partition %d: at %d of %d", p, len(then), len(now))
		}
	}
	return behind, nil
}
