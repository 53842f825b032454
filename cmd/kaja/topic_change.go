package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const dynamicTopicConfig = kmsg.ConfigSourceDynamicTopicConfig

// createdTopic is one topic that `kaja topic create` made.
type createdTopic struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	Partitions        int32  `json:"partitions"`
	ReplicationFactor int16  `json:"replication_factor"`
	Existed           bool   `json:"existed,omitempty"`
}

func (c *topicCommands) createCommand() *cobra.Command {
	var partitions int32
	var replicas int16
	var configs []string
	var ifNotExists, dryRun bool
	cmd := &cobra.Command{
		Use: "create TOPIC...", Short: "Make topics", Args: cobra.MinimumNArgs(1),
		Example: "  kaja topic create orders --partitions 6 --config retention.ms=3600000",
		RunE: func(_ *cobra.Command, names []string) error {
			set, err := parseConfigs(configs)
			if err != nil {
				return err
			}
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				create := admin(client).CreateTopics
				if dryRun {
					create = admin(client).ValidateCreateTopics
				}
				results, err := create(ctx, partitions, replicas, set, names...)
				if err != nil {
					return fmt.Errorf("create topics: %w", err)
				}
				return c.showCreated(results, names, ifNotExists, dryRun)
			})
		},
	}
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", -1, "number of partitions; -1 is the broker's default")
	cmd.Flags().Int16VarP(&replicas, "replication-factor", "r", -1, "replicas of each partition; -1 is the broker's default")
	cmd.Flags().StringArrayVarP(&configs, "config", "c", nil, "a topic config, `name=value`; repeatable")
	cmd.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "a topic that exists is no error")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the broker check it, and make nothing")
	_ = cmd.RegisterFlagCompletionFunc("config", completeTopicConfigs)
	return cmd
}

func (c *topicCommands) showCreated(results kadm.CreateTopicResponses, names []string, ifNotExists, dryRun bool) error {
	var failed []error
	made := []createdTopic{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		r := results[name]
		switch {
		case errors.Is(r.Err, kerr.TopicAlreadyExists) && ifNotExists:
			made = append(made, createdTopic{Name: name, Existed: true})
			c.say("Topic %s is there already.", name)
		case r.Err != nil:
			failed = append(failed, refused("create topic "+name, r.Err, r.ErrMessage))
		default:
			made = append(made, createdTopic{Name: name, ID: topicID(r.ID), Partitions: r.NumPartitions, ReplicationFactor: r.ReplicationFactor})
			verb := "Created"
			if dryRun {
				verb = "Could create"
			}
			c.say("%s topic %s: %s, replication factor %d.", verb, name, count(int(r.NumPartitions), "partition"), r.ReplicationFactor)
		}
	}
	if c.json {
		failed = append(failed, c.printJSON(made))
	}
	return errors.Join(failed...)
}

// parseConfigs reads name=value arguments; a mistake is one of the command line.
func parseConfigs(args []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not name=value", a)
		}
		out[name] = &value
	}
	return out, nil
}

func (c *topicCommands) alterCommand() *cobra.Command {
	var partitions int
	var set, unset []string
	cmd := &cobra.Command{
		Use: "alter TOPIC...", Short: "Change topics: more partitions, other configs", Args: cobra.MinimumNArgs(1),
		Example:           "  kaja topic alter orders --partitions 12 --set retention.ms=3600000 --unset cleanup.policy",
		ValidArgsFunction: c.completeTopics,
		RunE: func(_ *cobra.Command, names []string) error {
			values, err := parseConfigs(set)
			if err != nil {
				return err
			}
			if partitions <= 0 && len(values) == 0 && len(unset) == 0 {
				return errors.New("nothing to change: give --partitions, --set or --unset")
			}
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				return c.alter(ctx, admin(client), names, partitions, values, unset)
			})
		},
	}
	cmd.Flags().IntVarP(&partitions, "partitions", "p", 0, "number of partitions to have; it can only grow")
	cmd.Flags().StringArrayVarP(&set, "set", "s", nil, "set a topic config, `name=value`; repeatable")
	cmd.Flags().StringArrayVar(&unset, "unset", nil, "give a topic config back to the broker's default, by `name`; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("set", completeTopicConfigs)
	return cmd
}

// alter changes the configs first: a topic that refuses them keeps its partitions, too.
func (c *topicCommands) alter(ctx context.Context, adm *kadm.Client, names []string, partitions int, values map[string]*string, unset []string) error {
	var changes []kadm.AlterConfig
	for name, value := range values {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range unset {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	slices.SortFunc(changes, func(a, b kadm.AlterConfig) int { return strings.Compare(a.Name, b.Name) })
	bad := map[string]error{}
	if len(changes) > 0 {
		results, err := adm.AlterTopicConfigs(ctx, changes, names...)
		if err != nil {
			return fmt.Errorf("alter topic configs: %w", err)
		}
		for _, r := range results {
			if r.Err != nil {
				bad[r.Name] = refused("alter topic "+r.Name, r.Err, r.ErrMessage)
			}
		}
	}
	if rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return bad[n] != nil }); partitions > 0 && len(rest) > 0 {
		results, err := adm.UpdatePartitions(ctx, partitions, rest...)
		if err != nil {
			return fmt.Errorf("add partitions: %w", err)
		}
		for _, r := range results {
			if r.Err != nil {
				bad[r.Topic] = refused("add partitions to topic "+r.Topic, r.Err, r.ErrMessage)
			}
		}
	}
	altered := []string{}
	var failed []error
	for _, name := range names {
		if err := bad[name]; err != nil {
			failed = append(failed, err)
			continue
		}
		altered = append(altered, name)
		c.say("Altered topic %s.", name)
	}
	if c.json {
		failed = append(failed, c.printJSON(altered))
	}
	return errors.Join(failed...)
}

func (c *topicCommands) deleteCommand() *cobra.Command {
	var ifExists bool
	cmd := &cobra.Command{
		Use: "delete TOPIC...", Aliases: []string{"rm"}, Short: "Delete topics with all their records", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeTopics,
		RunE: func(_ *cobra.Command, names []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				results, err := admin(client).DeleteTopics(ctx, names...)
				if err != nil {
					return fmt.Errorf("delete topics: %w", err)
				}
				deleted := []string{}
				var failed []error
				for _, r := range results.Sorted() {
					switch {
					case errors.Is(r.Err, kerr.UnknownTopicOrPartition) && ifExists:
						c.say("There is no topic %s.", r.Topic)
					case r.Err != nil:
						failed = append(failed, refused("delete topic "+r.Topic, r.Err, r.ErrMessage))
					default:
						deleted = append(deleted, r.Topic)
						c.say("Deleted topic %s.", r.Topic)
					}
				}
				if c.json {
					failed = append(failed, c.printJSON(deleted))
				}
				return errors.Join(failed...)
			})
		},
	}
	cmd.Flags().BoolVar(&ifExists, "if-exists", false, "a topic that does not exist is no error")
	return cmd
}
