package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupCommands is `kaja group`.
type groupCommands struct{ *adminCommands }

func (a *app) groupCommand() *cobra.Command {
	c := &groupCommands{&adminCommands{app: a}}
	return c.noun("group", "See consumer groups, move their offsets, delete them",
		c.listCommand(), c.describeCommand(), c.resetCommand(), c.deleteCommand())
}

// listedGroup is one line of `kaja group list`.
type listedGroup struct {
	ID          string `json:"group_id"`
	Type        string `json:"type"`
	Protocol    string `json:"protocol"`
	State       string `json:"state"`
	Coordinator int32  `json:"coordinator"`
}

func (c *groupCommands) listCommand() *cobra.Command {
	var states, types []string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the groups of all coordinators", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				groups, err := admin(client).ListGroupsByType(ctx, types, states...)
				if err != nil {
					return fmt.Errorf("list the groups: %w", err)
				}
				found := make([]listedGroup, 0, len(groups))
				rows := make([][]string, 0, len(groups))
				for _, g := range groups.Sorted() {
					found = append(found, listedGroup{g.Group, g.GroupType, g.ProtocolType, g.State, g.Coordinator})
					rows = append(rows, []string{g.Group, textOrDash(g.GroupType), textOrDash(g.ProtocolType), textOrDash(g.State), fmt.Sprint(g.Coordinator)})
				}
				return c.print(found, "GROUP\tTYPE\tPROTOCOL\tSTATE\tCOORDINATOR", rows)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states, such as Stable or Empty")
	cmd.Flags().StringSliceVar(&types, "type", nil, "only these types, such as classic")
	return cmd
}

func textOrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// describedGroup is what `kaja group describe` says of one group.
type describedGroup struct {
	ID          string        `json:"group_id"`
	State       string        `json:"state"`
	Protocol    string        `json:"protocol"` // the assignor of its consumers
	Coordinator int32         `json:"coordinator"`
	Members     []groupMember `json:"members"`
	Offsets     []groupOffset `json:"offsets"`
	Lag         int64         `json:"lag"` // over all partitions whose lag is known
	Error       string        `json:"error,omitempty"`
}

type groupMember struct {
	ID         string             `json:"member_id"`
	Instance   string             `json:"instance_id,omitempty"`
	ClientID   string             `json:"client_id"`
	Host       string             `json:"host"`
	Partitions map[string][]int32 `json:"partitions"`
}

type groupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: nothing is committed
	End       int64  `json:"log_end_offset"`
	Lag       int64  `json:"lag"` // -1: not known
	Member    string `json:"member_id,omitempty"`
	ClientID  string `json:"client_id,omitempty"`
	Host      string `json:"host,omitempty"`
}

func (c *groupCommands) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe GROUP...", Aliases: []string{"desc"}, Short: "Describe groups: members, committed offsets, lag", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeGroups,
		RunE: func(_ *cobra.Command, names []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				found, failed := describeGroups(ctx, admin(client), names)
				if len(found) == 0 {
					return failed
				}
				if c.json {
					return errors.Join(c.printJSON(found), failed)
				}
				for i, g := range found {
					if i > 0 {
						c.say("")
					}
					failed = errors.Join(failed, c.showGroup(g))
				}
				return failed
			})
		},
	}
}

func (c *groupCommands) showGroup(g describedGroup) error {
	c.say("Group %s is %s: %s, coordinator %d, lag %d", g.ID, g.State, count(len(g.Members), "member"), g.Coordinator, g.Lag)
	rows := make([][]string, len(g.Offsets))
	for i, o := range g.Offsets {
		rows[i] = []string{o.Topic, fmt.Sprint(o.Partition), orDash(o.Committed), orDash(o.End), orDash(o.Lag), textOrDash(o.Member), textOrDash(o.ClientID), textOrDash(o.Host)}
	}
	return c.print(nil, "TOPIC\tPARTITION\tCOMMITTED\tLOG-END-OFFSET\tLAG\tMEMBER\tCLIENT\tHOST", rows)
}

// describeGroups describes the groups that exist; the error names the others.
func describeGroups(ctx context.Context, adm *kadm.Client, names []string) ([]describedGroup, error) {
	lags, err := adm.Lag(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("describe groups: %w", err)
	}
	var out []describedGroup
	var failed []error
	for _, l := range lags.Sorted() {
		switch {
		case l.Error() != nil:
			failed = append(failed, refused("describe group "+l.Group, l.Error(), ""))
			continue
		case l.State == "Dead": // what brokers say of a group that is not there
			failed = append(failed, refused("describe group "+l.Group, kerr.GroupIDNotFound, ""))
			continue
		}
		g := describedGroup{ID: l.Group, State: l.State, Protocol: l.Protocol, Coordinator: l.Coordinator.NodeID, Members: []groupMember{}, Offsets: []groupOffset{}}
		for i := range l.Members {
			g.Members = append(g.Members, memberOf(&l.Members[i]))
		}
		for _, p := range l.Lag.Sorted() {
			o := groupOffset{Topic: p.Topic, Partition: p.Partition, Committed: p.Commit.At, End: p.End.Offset, Lag: p.Lag}
			if p.Commit.At < 0 { // nothing is committed: all there is lies ahead
				o.Committed = -1
			}
			if p.End.Err != nil {
				o.End, o.Lag = -1, -1
			}
			if p.Member != nil {
				o.Member, o.ClientID, o.Host = p.Member.MemberID, p.Member.ClientID, host(p.Member.ClientHost)
			}
			g.Lag += max(o.Lag, 0)
			g.Offsets = append(g.Offsets, o)
		}
		out = append(out, g)
	}
	return out, errors.Join(failed...)
}

func memberOf(m *kadm.DescribedGroupMember) groupMember {
	out := groupMember{ID: m.MemberID, ClientID: m.ClientID, Host: host(m.ClientHost), Partitions: map[string][]int32{}}
	if m.InstanceID != nil {
		out.Instance = *m.InstanceID
	}
	if a, ok := m.Assigned.AsConsumer(); ok {
		for _, t := range a.Topics {
			out.Partitions[t.Topic] = sorted(t.Partitions)
		}
	}
	return out
}

// host is a client's address without the slash that brokers put before it.
func host(s string) string { return strings.TrimPrefix(s, "/") }

func (c *groupCommands) deleteCommand() *cobra.Command {
	return &cobra.Command{
		Use: "delete GROUP...", Aliases: []string{"rm"}, Short: "Delete groups without members, with their offsets", Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: c.completeGroups,
		RunE: func(_ *cobra.Command, names []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				results, err := admin(client).DeleteGroups(ctx, names...)
				if err != nil {
					return fmt.Errorf("delete groups: %w", err)
				}
				deleted := []string{}
				var failed []error
				for _, r := range results.Sorted() {
					if r.Err != nil {
						failed = append(failed, refused("delete group "+r.Group, r.Err, ""))
						continue
					}
					deleted = append(deleted, r.Group)
					c.say("Deleted group %s.", r.Group)
				}
				if c.json {
					failed = append(failed, c.printJSON(deleted))
				}
				return errors.Join(failed...)
			})
		},
	}
}
