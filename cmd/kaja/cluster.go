package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clusterCommands is `kaja cluster`.
type clusterCommands struct{ *adminCommands }

func (a *app) clusterCommand() *cobra.Command {
	c := &clusterCommands{&adminCommands{app: a}}
	return c.noun("cluster", "See the cluster as a whole", c.infoCommand())
}

// clusterInfo is what `kaja cluster info` says.
type clusterInfo struct {
	ID              string           `json:"cluster_id"`
	Controller      int32            `json:"controller"` // the broker to which admin requests may go
	Brokers         []clusterBroker  `json:"brokers"`
	Features        map[string]int16 `json:"features"` // finalized levels
	Topics          int              `json:"topics"`   // without Kafka's own
	Partitions      int              `json:"partitions"`
	UnderReplicated int              `json:"under_replicated"`
	Offline         int              `json:"offline"`
}

type clusterBroker struct {
	ID       int32  `json:"id"`
	Host     string `json:"host"`
	Port     int32  `json:"port"`
	Rack     string `json:"rack,omitempty"`
	Fenced   bool   `json:"fenced,omitempty"`
	Leaders  int    `json:"leaders"`  // partitions that it leads, Kafka's own topics included
	Replicas int    `json:"replicas"` // partitions that it holds
}

func (c *clusterCommands) infoCommand() *cobra.Command {
	return &cobra.Command{
		Use: "info", Short: "Say which brokers there are, and how the partitions do", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				info, err := describeCluster(ctx, client)
				if err != nil {
					return err
				}
				if c.json {
					return c.printJSON(info)
				}
				c.say("Cluster %s, controller %d", info.ID, info.Controller)
				c.say("%s, %s, %d under-replicated, %d offline", count(info.Topics, "topic"), count(info.Partitions, "partition"), info.UnderReplicated, info.Offline)
				c.say("Features: %s", featureText(info.Features))
				rows := make([][]string, len(info.Brokers))
				for i, b := range info.Brokers {
					state := "running"
					if b.Fenced {
						state = "fenced"
					}
					rows[i] = []string{fmt.Sprint(b.ID), fmt.Sprintf("%s:%d", b.Host, b.Port), textOrDash(b.Rack), state, fmt.Sprint(b.Leaders), fmt.Sprint(b.Replicas)}
				}
				return c.print(nil, "BROKER\tADDRESS\tRACK\tSTATE\tLEADERS\tREPLICAS", rows)
			})
		},
	}
}

func featureText(features map[string]int16) string {
	var out []string
	for name, level := range features {
		out = append(out, fmt.Sprintf("%s=%d", name, level))
	}
	slices.Sort(out)
	return textOrDash(strings.Join(out, ", "))
}

func describeCluster(ctx context.Context, client *kgo.Client) (*clusterInfo, error) {
	meta, err := admin(client).Metadata(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the metadata: %w", err)
	}
	info := &clusterInfo{ID: meta.Cluster, Controller: meta.Controller, Features: map[string]int16{}}
	if info.Brokers, err = clusterBrokers(ctx, client); err != nil {
		return nil, err
	}
	for _, t := range meta.Topics {
		l := overview(t)
		if !l.Internal {
			info.Topics++
		}
		info.Partitions += l.Partitions
		info.UnderReplicated += l.UnderReplicated
		info.Offline += l.Offline
		for _, p := range t.Partitions {
			for i := range info.Brokers {
				b := &info.Brokers[i]
				if p.Leader == b.ID {
					b.Leaders++
				}
				if slices.Contains(p.Replicas, b.ID) {
					b.Replicas++
				}
			}
		}
	}
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kaja-cli", "1"
	versions, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("ask for the features: %w", err)
	}
	for _, f := range versions.FinalizedFeatures {
		info.Features[f.Name] = f.MaxVersionLevel
	}
	return info, nil
}

// clusterBrokers lists the brokers, fenced ones too where the cluster tells of them.
func clusterBrokers(ctx context.Context, client *kgo.Client) ([]clusterBroker, error) {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType, req.IncludeFencedBrokers = 1, true
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return nil, fmt.Errorf("describe the cluster: %w", err)
	}
	brokers := []clusterBroker{}
	for _, b := range resp.Brokers {
		out := clusterBroker{ID: b.NodeID, Host: b.Host, Port: b.Port, Fenced: b.IsFenced}
		if b.Rack != nil {
			out.Rack = *b.Rack
		}
		brokers = append(brokers, out)
	}
	slices.SortFunc(brokers, func(a, b clusterBroker) int { return int(a.ID) - int(b.ID) })
	return brokers, nil
}
