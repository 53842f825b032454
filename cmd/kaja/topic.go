package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topicID is an id as Kafka writes it.
func topicID(id kadm.TopicID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// topicCommands is `kaja topic`.
type topicCommands struct{ *adminCommands }

func (a *app) topicCommand() *cobra.Command {
	c := &topicCommands{&adminCommands{app: a}}
	return c.noun("topic", "See, make, change and delete topics",
		c.listCommand(), c.createCommand(), c.describeCommand(), c.alterCommand(), c.deleteCommand())
}

// listedTopic is one line of `kaja topic list`.
type listedTopic struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	UnderReplicated   int    `json:"under_replicated"` // partitions with fewer in-sync replicas than replicas
	Offline           int    `json:"offline"`          // partitions without a leader
	Internal          bool   `json:"internal,omitempty"`
}

func (c *topicCommands) listCommand() *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the topics", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				list := admin(client).ListTopics
				if internal {
					list = admin(client).ListTopicsWithInternal
				}
				topics, err := list(ctx)
				if err != nil {
					return fmt.Errorf("list the topics: %w", err)
				}
				found := make([]listedTopic, 0, len(topics))
				rows := make([][]string, 0, len(topics))
				for _, t := range topics.Sorted() {
					l := overview(t)
					found = append(found, l)
					rows = append(rows, []string{l.Name, fmt.Sprint(l.Partitions), fmt.Sprint(l.ReplicationFactor), fmt.Sprint(l.UnderReplicated), fmt.Sprint(l.Offline)})
				}
				return c.print(found, "TOPIC\tPARTITIONS\tREPLICATION-FACTOR\tUNDER-REPLICATED\tOFFLINE", rows)
			})
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "with Kafka's own topics, such as __consumer_offsets")
	return cmd
}

func overview(t kadm.TopicDetail) listedTopic {
	l := listedTopic{Name: t.Topic, ID: topicID(t.ID), Partitions: len(t.Partitions), Internal: t.IsInternal}
	for _, p := range t.Partitions {
		l.ReplicationFactor = max(l.ReplicationFactor, len(p.Replicas))
		if len(p.ISR) < len(p.Replicas) {
			l.UnderReplicated++
		}
		if p.Leader < 0 {
			l.Offline++
		}
	}
	return l
}

// describedTopic is what `kaja topic describe` says of one topic.
type describedTopic struct {
	Name       string               `json:"name"`
	ID         string               `json:"id"`
	Internal   bool                 `json:"internal,omitempty"`
	Configs    map[string]string    `json:"configs"` // the topic's own
	Partitions []describedPartition `json:"partitions"`
}

type describedPartition struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"` // -1: none
	Epoch     int32   `json:"leader_epoch"`
	Replicas  []int32 `json:"replicas"`
	ISR       []int32 `json:"isr"`
	Start     int64   `json:"log_start_offset"` // -1: the leader did not tell
	End       int64   `json:"high_watermark"`   // exclusive; -1: the leader did not tell
}

func (c *topicCommands) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC...", Aliases: []string{"desc"}, Short: "Describe topics: configs, replicas, offsets", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTopics,
		RunE: func(_ *cobra.Command, names []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				found, err := describeTopics(ctx, admin(client), names)
				if err != nil && len(found) == 0 {
					return err
				}
				if c.json {
					return errors.Join(c.printJSON(found), err)
				}
				for i, t := range found {
					if i > 0 {
						c.say("")
					}
					err = errors.Join(err, c.showTopic(t))
				}
				return err
			})
		},
	}
}

// showTopic writes a topic for people.
func (c *topicCommands) showTopic(t describedTopic) error {
	c.say("Topic %s, id %s, %s", t.Name, t.ID, count(len(t.Partitions), "partition"))
	if len(t.Configs) > 0 {
		c.say("Configs: %s", configText(t.Configs))
	}
	rows := make([][]string, len(t.Partitions))
	for i, p := range t.Partitions {
		rows[i] = []string{fmt.Sprint(p.Partition), orDash(int64(p.Leader)), joinInts(p.Replicas), joinInts(p.ISR), orDash(p.Start), orDash(p.End)}
	}
	return c.print(nil, "PARTITION\tLEADER\tREPLICAS\tISR\tLOG-START-OFFSET\tHIGH-WATERMARK", rows)
}

func configText(configs map[string]string) string {
	var out []string
	for k, v := range configs {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// orDash is a number, or a dash where -1 stands for none.
func orDash(n int64) string {
	if n < 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

// describeTopics describes those topics that exist; the error names the others.
func describeTopics(ctx context.Context, adm *kadm.Client, names []string) ([]describedTopic, error) {
	topics, err := adm.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe topics: %w", err)
	}
	var failed []error
	var there []string
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			failed = append(failed, refused("describe topic "+t.Topic, t.Err, ""))
			continue
		}
		there = append(there, t.Topic)
	}
	if len(there) == 0 {
		return nil, errors.Join(failed...)
	}
	starts, err := adm.ListStartOffsets(ctx, there...)
	if err != nil {
		failed = append(failed, fmt.Errorf("list the start offsets: %w", err))
	}
	ends, err := adm.ListEndOffsets(ctx, there...)
	if err != nil {
		failed = append(failed, fmt.Errorf("list the end offsets: %w", err))
	}
	configs, err := adm.DescribeTopicConfigs(ctx, there...)
	if err != nil {
		failed = append(failed, fmt.Errorf("describe the configs: %w", err))
	}
	var out []describedTopic
	for _, name := range there {
		t := topics[name]
		d := describedTopic{Name: name, ID: topicID(t.ID), Internal: t.IsInternal, Configs: ownConfigs(configs, name)}
		for _, p := range t.Partitions.Sorted() {
			dp := describedPartition{Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch, Replicas: append([]int32{}, p.Replicas...), ISR: sorted(p.ISR), Start: -1, End: -1}
			if o, ok := starts.Lookup(name, p.Partition); ok && o.Err == nil {
				dp.Start = o.Offset
			}
			if o, ok := ends.Lookup(name, p.Partition); ok && o.Err == nil {
				dp.End = o.Offset
			}
			d.Partitions = append(d.Partitions, dp)
		}
		out = append(out, d)
	}
	return out, errors.Join(failed...)
}

// ownConfigs is what was set on the topic itself.
func ownConfigs(all kadm.ResourceConfigs, topic string) map[string]string {
	own := map[string]string{}
	for _, r := range all {
		if r.Name != topic {
			continue
		}
		for _, c := range r.Configs {
			if c.Source == dynamicTopicConfig && c.Value != nil {
				own[c.Key] = *c.Value
			}
		}
	}
	return own
}
