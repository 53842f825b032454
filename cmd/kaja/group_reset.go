package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// resetTo is where offsets are moved to.
type resetTo struct {
	start, end bool
	offset     *int64     // this one
	shift      *int64     // by so many from what is committed
	at         *time.Time // of the first record from then on
}

// parseResetTo reads --to.
func parseResetTo(s string, now time.Time) (resetTo, error) {
	bad := fmt.Errorf("--to %q: want start, end, an offset, +N or -N, @2006-01-02T15:04:05Z, or @-1h for a time before now", s)
	switch {
	case s == "start":
		return resetTo{start: true}, nil
	case s == "end":
		return resetTo{end: true}, nil
	case strings.HasPrefix(s, "@"):
		at, err := parseTime(s[1:], now)
		if err != nil {
			return resetTo{}, bad
		}
		return resetTo{at: &at}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return resetTo{}, bad
	}
	if s[0] == '+' || s[0] == '-' {
		return resetTo{shift: &n}, nil
	}
	return resetTo{offset: &n}, nil
}

// parseTime reads a time, milliseconds since 1970, or a duration before now (-90m).
func parseTime(s string, now time.Time) (time.Time, error) {
	if strings.HasPrefix(s, "-") {
		d, err := time.ParseDuration(s)
		return now.Add(d), err
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("not a time")
}

// movedOffset is one partition of `kaja group reset`.
type movedOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Old       int64  `json:"old_offset"` // -1: nothing was committed
	New       int64  `json:"new_offset"`
}

func (c *groupCommands) resetCommand() *cobra.Command {
	var topics []string
	var to string
	var execute bool
	cmd := &cobra.Command{
		Use: "reset GROUP", Short: "Move the committed offsets of a group without members", Args: cobra.ExactArgs(1),
		Long: `Move the committed offsets of a group without members.

Without --execute it shows what it would do. Offsets stay within what the partitions hold.`,
		Example: `  kaja group reset billing --to start
  kaja group reset billing --topic orders:0,1 --to @-1h --execute`,
		ValidArgsFunction: c.completeGroups,
		RunE: func(_ *cobra.Command, args []string) error {
			where, err := parseResetTo(to, time.Now())
			if err != nil {
				return err
			}
			which, err := parseTopics(topics)
			if err != nil {
				return err
			}
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				return c.reset(ctx, admin(client), args[0], which, where, execute)
			})
		},
	}
	cmd.Flags().StringArrayVarP(&topics, "topic", "t", nil, "only this `topic`, or topic:0,1 for some of its partitions; repeatable. Without it: all topics for which the group has offsets")
	cmd.Flags().StringVar(&to, "to", "", "start, end, an offset, +N or -N from where it is, @time or @-1h")
	cmd.Flags().BoolVar(&execute, "execute", false, "do it")
	_ = cmd.MarkFlagRequired("to")
	_ = cmd.RegisterFlagCompletionFunc("topic", c.completeTopics)
	return cmd
}

// parseTopics reads topic and topic:0,1; nil partitions are all.
func parseTopics(args []string) (map[string][]int32, error) {
	out := map[string][]int32{}
	for _, a := range args {
		topic, list, some := strings.Cut(a, ":")
		if !some {
			out[topic] = nil
			continue
		}
		for p := range strings.SplitSeq(list, ",") {
			n, err := strconv.ParseInt(p, 10, 32)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--topic %q: %q is not a partition", a, p)
			}
			out[topic] = append(out[topic], int32(n))
		}
	}
	return out, nil
}

func (c *groupCommands) reset(ctx context.Context, adm *kadm.Client, group string, which map[string][]int32, to resetTo, execute bool) error {
	described, err := adm.DescribeGroups(ctx, group)
	if err != nil {
		return fmt.Errorf("describe group %s: %w", group, err)
	}
	// A group that is not there yet may be given offsets, as with Kafka's tool.
	if g := described[group]; g.Err != nil && !errors.Is(g.Err, kerr.GroupIDNotFound) {
		return refused("describe group "+group, g.Err, g.ErrMessage)
	} else if g.Err == nil && g.State != "Empty" && g.State != "Dead" {
		return &advised{fmt.Errorf("reset group %s: assignments can only be reset if the group is inactive, but the current state is %s", group, g.State),
			`Stop its members first; "kaja group describe" shows who they are.`}
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil {
		return fmt.Errorf("fetch the offsets of group %s: %w", group, err)
	}
	if len(which) == 0 {
		which = map[string][]int32{}
		for topic, ps := range committed {
			for p := range ps {
				which[topic] = append(which[topic], p)
			}
		}
		if len(which) == 0 {
			return &advised{refused("reset group "+group, kerr.GroupIDNotFound, ""), "The group has committed nothing; --topic says which topics to give it offsets for."}
		}
	}
	moved, err := planReset(ctx, adm, committed, which, to)
	if err != nil {
		return err
	}
	if execute {
		offsets := kadm.Offsets{}
		for _, m := range moved {
			offsets.AddOffset(m.Topic, m.Partition, m.New, -1)
		}
		if err := adm.CommitAllOffsets(ctx, group, offsets); err != nil {
			return fmt.Errorf("commit the offsets of group %s: %w", group, err)
		}
	}
	rows := make([][]string, len(moved))
	for i, m := range moved {
		rows[i] = []string{m.Topic, fmt.Sprint(m.Partition), orDash(m.Old), fmt.Sprint(m.New)}
	}
	if err := c.print(moved, "TOPIC\tPARTITION\tOLD-OFFSET\tNEW-OFFSET", rows); err != nil {
		return err
	}
	if !execute {
		c.say("Nothing was changed; add --execute to do it.")
	}
	return nil
}

// planReset works out the new offsets, sorted by topic and partition.
func planReset(ctx context.Context, adm *kadm.Client, committed kadm.OffsetResponses, which map[string][]int32, to resetTo) ([]movedOffset, error) {
	names := make([]string, 0, len(which))
	for topic := range which {
		names = append(names, topic)
	}
	slices.Sort(names)
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list the start offsets: %w", err)
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("list the end offsets: %w", err)
	}
	targets := ends
	switch {
	case to.start:
		targets = starts
	case to.at != nil:
		if targets, err = adm.ListOffsetsAfterMilli(ctx, to.at.UnixMilli(), names...); err != nil {
			return nil, fmt.Errorf("list the offsets of %s: %w", to.at.Format(time.RFC3339), err)
		}
	}
	moved := []movedOffset{}
	for _, topic := range names {
		all, err := listedPartitions(ends, topic)
		if err != nil {
			return nil, refused("reset the offsets of topic "+topic, err, "")
		}
		partitions := which[topic]
		if partitions == nil {
			partitions = all
		}
		for _, p := range sorted(partitions) {
			m, err := planPartition(topic, p, committed, starts, ends, targets, to)
			if err != nil {
				return nil, err
			}
			moved = append(moved, m)
		}
	}
	return moved, nil
}

func planPartition(topic string, p int32, committed kadm.OffsetResponses, starts, ends, targets kadm.ListedOffsets, to resetTo) (movedOffset, error) {
	m := movedOffset{Topic: topic, Partition: p, Old: -1}
	if o, ok := committed.Lookup(topic, p); ok && o.Err == nil {
		m.Old = o.At
	}
	start, okStart := starts.Lookup(topic, p)
	end, okEnd := ends.Lookup(topic, p)
	target, ok := targets.Lookup(topic, p)
	what := fmt.Sprintf("reset the offset of %s-%d", topic, p)
	if !ok || !okStart || !okEnd {
		return m, refused(what, kerr.UnknownTopicOrPartition, "")
	}
	if err := cmp.Or(start.Err, end.Err, target.Err); err != nil {
		return m, refused(what, err, "")
	}
	m.New = target.Offset
	switch {
	case to.offset != nil:
		m.New = *to.offset
	case to.shift != nil && m.Old < 0:
		return m, fmt.Errorf("%s: the group has committed nothing there to count from", what)
	case to.shift != nil:
		m.New = m.Old + *to.shift
	}
	m.New = min(max(m.New, start.Offset), end.Offset)
	return m, nil
}

// listedPartitions is the partitions of a topic whose offsets were listed, sorted, or why there are none.
func listedPartitions(listed kadm.ListedOffsets, topic string) ([]int32, error) {
	var all []int32
	for p, o := range listed[topic] {
		if p < 0 { // how kadm reports a topic that is not there
			return nil, o.Err
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, kerr.UnknownTopicOrPartition
	}
	return sorted(all), nil
}
