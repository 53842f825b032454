package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeFrom is where reading begins.
type consumeFrom struct {
	start  bool
	last   int64      // so many before the end; 0: at the end
	offset *int64     // this one
	at     *time.Time // the first record from then on
}

// parseFrom reads --offset.
func parseFrom(s string, now time.Time) (consumeFrom, error) {
	switch {
	case s == "start":
		return consumeFrom{start: true}, nil
	case s == "end":
		return consumeFrom{}, nil
	case strings.HasPrefix(s, "@"):
		if at, err := parseTime(s[1:], now); err == nil {
			return consumeFrom{at: &at}, nil
		}
	default:
		n, err := strconv.ParseInt(s, 10, 64)
		switch {
		case err != nil:
		case n < 0:
			return consumeFrom{last: -n}, nil
		default:
			return consumeFrom{offset: &n}, nil
		}
	}
	return consumeFrom{}, fmt.Errorf("--offset %q: want start, end, an offset, -N, @2006-01-02T15:04:05Z or @-1h", s)
}

// reset is where a group begins that has committed nothing.
func (f consumeFrom) reset() kgo.Offset {
	o := kgo.NewOffset()
	switch {
	case f.start:
		return o.AtStart()
	case f.at != nil:
		return o.AfterMilli(f.at.UnixMilli())
	case f.offset != nil:
		return o.At(*f.offset)
	}
	return o.AtEnd().Relative(-f.last)
}

// assign finds out where each partition begins and ends, and has the client read them.
func (r *reading) assign(ctx context.Context, topics []string, from consumeFrom) error {
	adm := admin(r.client)
	starts, err := adm.ListStartOffsets(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list the start offsets: %w", err)
	}
	listEnds := adm.ListEndOffsets
	if r.committed {
		listEnds = adm.ListCommittedOffsets
	}
	ends, err := listEnds(ctx, topics...)
	if err != nil {
		return fmt.Errorf("list the end offsets: %w", err)
	}
	var times kadm.ListedOffsets
	if from.at != nil {
		if times, err = adm.ListOffsetsAfterMilli(ctx, from.at.UnixMilli(), topics...); err != nil {
			return fmt.Errorf("list the offsets of %s: %w", from.at.Format(time.RFC3339), err)
		}
	}
	assigned := map[string]map[int32]kgo.Offset{}
	for _, topic := range topics {
		partitions, err := r.wanted(topic, ends)
		if err != nil {
			return err
		}
		assigned[topic] = map[int32]kgo.Offset{}
		for _, p := range partitions {
			s, _ := starts.Lookup(topic, p)
			e, _ := ends.Lookup(topic, p)
			t, _ := times.Lookup(topic, p)
			if err := cmp.Or(s.Err, e.Err, t.Err); err != nil {
				return refused(fmt.Sprintf("consume %s-%d", topic, p), err, "")
			}
			at := from.in(s.Offset, e.Offset, t.Offset)
			assigned[topic][p] = kgo.NewOffset().At(at)
			if at < e.Offset {
				r.ends[partitionKey{topic, p}] = e.Offset
			}
		}
	}
	r.client.AddConsumePartitions(assigned)
	return nil
}

// wanted is the partitions of a topic to read.
func (r *reading) wanted(topic string, ends kadm.ListedOffsets) ([]int32, error) {
	all, err := listedPartitions(ends, topic)
	if err != nil {
		return nil, refused("consume "+topic, err, "")
	}
	if len(r.partitions) == 0 {
		return all, nil
	}
	for _, p := range r.partitions {
		if !slices.Contains(all, p) {
			return nil, refused(fmt.Sprintf("consume %s-%d", topic, p), kerr.UnknownTopicOrPartition, "")
		}
	}
	return r.partitions, nil
}

// in is the offset to begin at in a partition that holds [start, end).
func (f consumeFrom) in(start, end, atTime int64) int64 {
	at := end - f.last
	switch {
	case f.start:
		at = start
	case f.offset != nil:
		at = *f.offset
	case f.at != nil:
		at = atTime
	}
	return min(max(at, start), end)
}
