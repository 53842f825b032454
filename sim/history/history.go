package history

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// History is what producers were told. Safe for concurrent use.
type History struct {
	// Padding is what each record carries besides its value, in bytes, so that segments fill up and roll.
	Padding int

	mu     sync.Mutex
	acked  map[string]place // by the record's value
	failed map[string]error // told that it did not work: unknown whether it is there
	sent   int
}

// place is where a record is.
type place struct {
	partition int32
	offset    wire.Offset
}

// New is empty, with 2 KiB of padding.
func New() *History {
	return &History{Padding: 2 << 10, acked: map[string]place{}, failed: map[string]error{}}
}

// Acked is how many records were acknowledged so far.
func (h *History) Acked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked)
}

// Failed is how many records producers gave up.
func (h *History) Failed() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.failed)
}

// Failures are at most n of the records that producers gave up, with what they were told.
func (h *History) Failures(n int) (some []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, value := range slices.Sorted(maps.Keys(h.failed)) {
		if len(some) == n {
			break
		}
		some = append(some, fmt.Sprintf("%q: %v", value, h.failed[value]))
	}
	return some
}

// Told notes what a producer was told of a record.
func (h *History) Told(value string, r *kgo.Record, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.failed[value] = err
		return
	}
	h.acked[value] = place{r.Partition, wire.Offset(r.Offset)}
}

// Produce sends a record to topic every pause until ctx ends, then waits for what is under way. The value of a record is
// "name:number", the numbers grow.
func (h *History) Produce(ctx context.Context, cl *kgo.Client, topic, name string, pause time.Duration) error {
	padding := []kgo.RecordHeader{{Key: "padding", Value: make([]byte, h.Padding)}}
	for n := 0; ctx.Err() == nil; n++ {
		value := name + ":" + strconv.Itoa(n)
		cl.Produce(context.Background(), &kgo.Record{Topic: topic, Value: []byte(value), Headers: padding}, func(r *kgo.Record, err error) {
			h.Told(value, r, err)
		})
		h.mu.Lock()
		h.sent++
		h.mu.Unlock()
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	if err := cl.Flush(context.Background()); err != nil {
		return fmt.Errorf("flush producer %s: %w", name, err)
	}
	return nil
}

// Check compares the history with what a topic holds. Every acknowledged record must be there once, where its producer
// was told; no record may be there twice; each producer's records are in their order within a partition; and nothing is
// there that nobody sent.
func (h *History) Check(log map[int32][]Read) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	seen := map[string]place{}
	for _, p := range slices.Sorted(maps.Keys(log)) {
		newest := map[string]int{}
		last := wire.Offset(-1)
		for _, r := range log[p] {
			at := place{p, r.Offset}
			if r.Offset <= last {
				errs = append(errs, fmt.Errorf("partition %d: offset %d comes after %d", p, r.Offset, last))
			}
			last = r.Offset
			if first, ok := seen[r.Value]; ok {
				errs = append(errs, fmt.Errorf("%q is there twice: at %v and %v", r.Value, first, at))
				continue
			}
			seen[r.Value] = at
			name, number, err := producerOf(r.Value)
			if err != nil {
				errs = append(errs, fmt.Errorf("at %v: %w", at, err))
				continue
			}
			if before, ok := newest[name]; ok && number <= before {
				errs = append(errs, fmt.Errorf("partition %d: %q comes after number %d of its producer", p, r.Value, before))
			}
			newest[name] = number
			if told, ok := h.acked[r.Value]; ok && told != at {
				errs = append(errs, fmt.Errorf("%q is at %v, its producer was told %v", r.Value, at, told))
			}
		}
	}
	for _, value := range slices.Sorted(maps.Keys(h.acked)) {
		if _, ok := seen[value]; !ok {
			errs = append(errs, fmt.Errorf("%q was acknowledged at %v and is lost", value, h.acked[value]))
		}
	}
	return firstErrors(errs)
}

// Tally counts what Check finds: acknowledged records that are not there, and records that are there more than once.
func (h *History) Tally(log map[int32][]Read) (lost, twice int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, records := range log {
		for _, r := range records {
			if seen[r.Value] {
				twice++
			}
			seen[r.Value] = true
		}
	}
	for value := range h.acked {
		if !seen[value] {
			lost++
		}
	}
	return lost, twice
}

// firstErrors keeps a report readable.
func firstErrors(errs []error) error {
	const most = 20
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", len(errs)-most))
	}
	return errors.Join(errs...)
}

func producerOf(value string) (name string, number int, err error) {
	name, text, ok := strings.Cut(value, ":")
	if !ok {
		return "", 0, fmt.Errorf("%q was sent by nobody", value)
	}
	if number, err = strconv.Atoi(text); err != nil {
		return "", 0, fmt.Errorf("%q was sent by nobody", value)
	}
	return name, number, nil
}

// Read is one record as a consumer got it.
type Read struct {
	Offset wire.Offset
	Value  string
}

// ReadTopic reads a topic from its start to its present end, by partition, with a client that client makes.
func ReadTopic(ctx context.Context, client func(...kgo.Opt) (*kgo.Client, error), topic string) (map[int32][]Read, error) {
	cl, err := client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	log, missing := map[int32][]Read{}, 0
	ends.Each(func(e kadm.ListedOffset) {
		if e.Offset > 0 {
			missing++
		}
	})
	for missing > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("read %s: %w", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			log[r.Partition] = append(log[r.Partition], Read{wire.Offset(r.Offset), string(r.Value)})
			if end, _ := ends.Lookup(topic, r.Partition); r.Offset+1 == end.Offset {
				missing--
			}
		})
	}
	return log, nil
}
