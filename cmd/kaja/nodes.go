package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// nodeCommands is `kaja node`: list and remove speak the public protocol, to any broker; token, add and recover read the
// configuration and the directories of the node on this machine.
type nodeCommands struct{ *adminCommands }

func (a *app) nodeCommand() *cobra.Command {
	c := &nodeCommands{&adminCommands{app: a}}
	return c.noun("node", "See, add, remove and rescue the nodes of a cluster",
		c.listCommand(), c.tokenCommand(), c.addCommand(), c.removeCommand(), c.recoverCommand())
}

// local adds the flags by which a command finds the node on this machine, and loads its settings.
func (c *nodeCommands) local(cmd *cobra.Command) func(args []string) (*config.Config, error) {
	var f startFlags
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.Flags().StringVarP(&f.file, "config", "c", "", "properties `file` of the node")
	cmd.Flags().StringArrayVarP(&f.set, "set", "s", nil, "one setting of the node, `name=value`; repeatable")
	return func(args []string) (*config.Config, error) {
		if len(args) == 1 {
			f.file = args[0]
		}
		cfg, _, err := c.load(f)
		if err != nil {
			return nil, &failure{err, exitUsage}
		}
		return cfg, nil
	}
}

func quietEnv() broker.Env { return broker.OSEnv(slog.New(slog.DiscardHandler)) }

// tokenOf makes the token of the node that cfg describes.
func (c *nodeCommands) tokenOf(cfg *config.Config) (token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	at, cluster, err := broker.JoinToken(ctx, quietEnv(), cfg)
	if err != nil {
		return token{}, &failure{err, exitFatal}
	}
	return token{Address: at, ClusterID: cluster, Secret: cfg.String("kaja.cluster.secret")}, nil
}

func (c *nodeCommands) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "token [server.properties]", Short: "Print what another node needs to join the cluster of the node on this machine",
		Long: `Print what another node needs to join the cluster of the node on this machine: its address, the cluster's id and its
secret in one string. Whoever has it can join: treat it as a password. Where nodes prove themselves by certificates instead of a
secret it holds none, and the other node needs a certificate of its own. A node that others cannot reach is told what to set first.`,
	}
	load := c.local(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		cfg, err := load(args)
		if err != nil {
			return err
		}
		t, err := c.tokenOf(cfg)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.stdout, t)
		return err
	}
	return cmd
}

func (c *nodeCommands) addCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "add [server.properties]", Short: "Print the command that adds another machine to the cluster of the node on this one",
	}
	load := c.local(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		cfg, err := load(args)
		if err != nil {
			return err
		}
		t, err := c.tokenOf(cfg)
		if err != nil {
			return err
		}
		if cfg.NodeTLS() {
			_, err = fmt.Fprintf(c.stdout, "Run this on the new machine, with listeners and ssl.* settings like this node's and a certificate of its own in the file:\n\n  kaja start server.properties --join %s --token %s\n", t.Address, t)
			return err
		}
		_, err = fmt.Fprintf(c.stdout, "Run this on the new machine; the port must be reachable from the others:\n\n  kaja start --set listeners=PLAINTEXT://:9092 --join %s --token %s\n", t.Address, t)
		return err
	}
	return cmd
}

// listedNode is one line of `kaja node list`.
type listedNode struct {
	ID     int32  `json:"node"`
	Quorum string `json:"quorum"` // leads, votes or follows
	Broker string `json:"broker"` // up, fenced, or none
	Host   string `json:"host,omitempty"`
	Rack   string `json:"rack,omitempty"`
	Behind *int64 `json:"metadata_behind,omitempty"` // entries; nil: unknown
}

func (c *nodeCommands) listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the nodes: who votes, who serves clients, how far behind the metadata they are", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				nodes, err := listNodes(ctx, client)
				if err != nil {
					return err
				}
				rows := make([][]string, len(nodes))
				for i, n := range nodes {
					behind := "?"
					if n.Behind != nil {
						behind = fmt.Sprint(*n.Behind)
					}
					rows[i] = []string{fmt.Sprint(n.ID), n.Quorum, n.Broker, n.Host, behind}
				}
				return c.print(nodes, "NODE\tQUORUM\tBROKER\tADDRESS\tBEHIND", rows)
			})
		},
	}
}

// listNodes puts the quorum and the brokers together.
func listNodes(ctx context.Context, client *kgo.Client) ([]listedNode, error) {
	byID := map[int32]*listedNode{}
	var order []int32
	of := func(id int32) *listedNode {
		n := byID[id]
		if n == nil {
			n = &listedNode{ID: id, Quorum: "-", Broker: "none"}
			byID[id] = n
			order = append(order, id)
		}
		return n
	}
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.IncludeFencedBrokers = true
	brokers, err := cluster.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(brokers.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	for _, b := range brokers.Brokers {
		n := of(b.NodeID)
		n.Broker, n.Host = "up", fmt.Sprintf("%s:%d", b.Host, b.Port)
		if b.IsFenced {
			n.Broker = "fenced"
		}
		if b.Rack != nil {
			n.Rack = *b.Rack
		}
	}
	quorum, err := describeQuorum(ctx, client)
	if err != nil {
		return nil, err
	}
	note := func(role string, states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
		for _, s := range states {
			n := of(s.ReplicaID)
			if n.Quorum = role; s.ReplicaID == quorum.LeaderID {
				n.Quorum = "leads"
			}
			if s.LogEndOffset >= 0 {
				behind := max(quorum.HighWatermark-s.LogEndOffset, 0)
				n.Behind = &behind
			}
		}
	}
	note("follows", quorum.Observers)
	note("votes", quorum.CurrentVoters)
	out := make([]listedNode, 0, len(order))
	for _, id := range order {
		out = append(out, *byID[id])
	}
	slices.SortFunc(out, func(a, b listedNode) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

func describeQuorum(ctx context.Context, client *kgo.Client) (kmsg.DescribeQuorumResponseTopicPartition, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	topic := kmsg.NewDescribeQuorumRequestTopic()
	topic.Topic = "__cluster_metadata"
	topic.Partitions = []kmsg.DescribeQuorumRequestTopicPartition{kmsg.NewDescribeQuorumRequestTopicPartition()}
	req.Topics = []kmsg.DescribeQuorumRequestTopic{topic}
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && (len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1) {
		err = errors.New("the answer is of no quorum")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return kmsg.DescribeQuorumResponseTopicPartition{}, fmt.Errorf("describe the quorum: %w", err)
	}
	return resp.Topics[0].Partitions[0], nil
}

func (c *nodeCommands) removeCommand() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use: "remove NODE", Short: "Forget a node that has stopped for good", Args: cobra.ExactArgs(1),
		Long: `Forget a node that has stopped for good: its registration as a broker, and its place and vote in the metadata quorum.
A broker that runs is not removed, nor, without --force, one that replicas are still assigned to.`,
		RunE: func(_ *cobra.Command, args []string) error {
			id, err := strconv.ParseInt(args[0], 10, 32)
			if err != nil {
				return fmt.Errorf("%q is not a node id", args[0])
			}
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				return c.remove(ctx, client, int32(id), force)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if replicas are assigned to it: they stay assigned to a node that is gone")
	return cmd
}

func (c *nodeCommands) remove(ctx context.Context, client *kgo.Client, id int32, force bool) error {
	nodes, err := listNodes(ctx, client)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n.ID == id && n.Broker == "up" {
			return fmt.Errorf("node %d is running: stop it first", id)
		}
	}
	held, err := replicasOn(ctx, client, id)
	if err != nil {
		return err
	}
	if len(held) > 0 && !force {
		shown := held[:min(len(held), 5)]
		return fmt.Errorf("node %d is still a replica of %d partitions (%s%s): --force removes it all the same", id, len(held),
			strings.Join(shown, ", "), map[bool]string{true: ", …"}[len(held) > len(shown)])
	}
	req := kmsg.NewPtrUnregisterBrokerRequest()
	req.BrokerID = id
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("remove node %d: %w", id, err)
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("remove node %d: %w", id, err)
	}
	_, err = fmt.Fprintf(c.stdout, "Node %d is removed.\n", id)
	return err
}

// replicasOn lists the partitions that a node is a replica of.
func replicasOn(ctx context.Context, client *kgo.Client, id int32) ([]string, error) {
	req := kmsg.NewPtrMetadataRequest()
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("list the topics: %w", err)
	}
	var out []string
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, r := range p.Replicas {
				if r == id && t.Topic != nil {
					out = append(out, fmt.Sprintf("%s-%d", *t.Topic, p.Partition))
				}
			}
		}
	}
	return out, nil
}

func (c *nodeCommands) recoverCommand() *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use: "recover [server.properties]", Short: "Make the stopped node on this machine the only voter of a quorum that is lost for good",
		Long: `Make the stopped node on this machine the only voter of its cluster's metadata quorum. It is the last resort when a
majority of the voters is lost for good: what they had decided and this node has not received is lost, and what this node
has received without their agreement counts. It refuses while a quorum answers. Without --force it only says what would be
done.`,
	}
	load := c.local(cmd)
	cmd.Flags().BoolVar(&force, "force", false, "do it")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		cfg, err := load(args)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		text, err := broker.Recover(ctx, quietEnv(), cfg, force)
		_, _ = fmt.Fprint(c.stdout, text)
		if err != nil {
			return &failure{err, exitFatal}
		}
		return nil
	}
	return cmd
}
