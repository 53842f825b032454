package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnCommands is `kaja txn`: it speaks the public protocol only, to any broker.
type txnCommands struct{ *adminCommands }

func (a *app) txnCommand() *cobra.Command {
	c := &txnCommands{&adminCommands{app: a}}
	return c.noun("txn", "See transactions, and free what they block",
		c.listCommand(), c.describeCommand(), c.abortCommand(), c.whyBlockedCommand())
}

// listedTxn is one line of `kaja txn list`.
type listedTxn struct {
	ID          string `json:"transactional_id"`
	Coordinator int32  `json:"coordinator"`
	ProducerID  int64  `json:"producer_id"`
	State       string `json:"state"`
}

func (c *txnCommands) listCommand() *cobra.Command {
	var states []string
	var longer time.Duration
	cmd := &cobra.Command{
		Use: "list", Short: "List the transactional ids of all coordinators", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				found, err := listTxns(ctx, client, func(r *kmsg.ListTransactionsRequest) {
					r.StateFilters, r.DurationFilterMillis = states, -1
					if longer > 0 {
						r.DurationFilterMillis = longer.Milliseconds()
					}
				})
				if err != nil {
					return err
				}
				rows := make([][]string, len(found))
				for i, t := range found {
					rows[i] = []string{t.ID, fmt.Sprint(t.Coordinator), fmt.Sprint(t.ProducerID), t.State}
				}
				return c.print(found, "TRANSACTIONAL-ID\tCOORDINATOR\tPRODUCER-ID\tSTATE", rows)
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states, such as Ongoing or PrepareCommit")
	cmd.Flags().DurationVar(&longer, "longer-than", 0, "only those that run for longer than this")
	return cmd
}

// listTxns asks every broker.
func listTxns(ctx context.Context, client *kgo.Client, filter func(*kmsg.ListTransactionsRequest)) ([]listedTxn, error) {
	req := kmsg.NewPtrListTransactionsRequest()
	filter(req)
	found := []listedTxn{}
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("list transactions: %w", shard.Err)
		}
		resp := shard.Resp.(*kmsg.ListTransactionsResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, fmt.Errorf("list transactions of broker %d: %w", shard.Meta.NodeID, err)
		}
		for _, t := range resp.TransactionStates {
			found = append(found, listedTxn{t.TransactionalID, shard.Meta.NodeID, t.ProducerID, t.TransactionState})
		}
	}
	slices.SortFunc(found, func(a, b listedTxn) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// describedTxn is what `kaja txn describe` says of one id.
type describedTxn struct {
	ID            string             `json:"transactional_id"`
	Error         string             `json:"error,omitempty"`
	ProducerID    int64              `json:"producer_id"`
	ProducerEpoch int16              `json:"producer_epoch"`
	State         string             `json:"state"`
	TimeoutMs     int32              `json:"timeout_ms"`
	Started       *time.Time         `json:"started,omitempty"`
	ClientID      string             `json:"client_id,omitempty"`
	ClientHost    string             `json:"client_host,omitempty"`
	Partitions    map[string][]int32 `json:"partitions"`
}

// unknownUser stands for a client that the coordinator has not seen since it was loaded.
const unknownUser = "unknown since failover"

func (d *describedTxn) user() string {
	if d.ClientID == "" && d.ClientHost == "" {
		return unknownUser
	}
	return strings.TrimSpace(d.ClientID + " " + d.ClientHost)
}

func (d *describedTxn) started() string {
	if d.Started == nil {
		return "-"
	}
	return d.Started.UTC().Format(time.RFC3339)
}

func (c *txnCommands) describeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe ID...", Short: "Describe transactional ids", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, ids []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				found, err := describeTxns(ctx, client, ids)
				if err != nil {
					return err
				}
				var rows [][]string
				var failed []error
				for _, d := range found {
					if d.Error != "" {
						failed = append(failed, fmt.Errorf("%s: %s", d.ID, d.Error))
						continue
					}
					rows = append(rows, []string{d.ID, d.State, fmt.Sprintf("%d/%d", d.ProducerID, d.ProducerEpoch), d.started(),
						(time.Duration(d.TimeoutMs) * time.Millisecond).String(), partitionsText(d.Partitions), d.user()})
				}
				err = c.print(found, "TRANSACTIONAL-ID\tSTATE\tPRODUCER\tSTARTED\tTIMEOUT\tPARTITIONS\tCLIENT", rows)
				return errors.Join(append(failed, err)...)
			})
		},
	}
}

func partitionsText(m map[string][]int32) string {
	var out []string
	for topic, ps := range m {
		for _, p := range ps {
			out = append(out, fmt.Sprintf("%s-%d", topic, p))
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ",")
}

// Tagged fields in which kaja says who uses a transactional id; other brokers do not send them.
const (
	tagTxnClientID = 10_000
	tagTxnHost     = 10_001
)

func describeTxns(ctx context.Context, client *kgo.Client, ids []string) ([]describedTxn, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	var found []describedTxn
	for _, shard := range client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("describe transactions: %w", shard.Err)
		}
		states := shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates
		for i := range states {
			s := &states[i]
			d := describedTxn{
				ID: s.TransactionalID, ProducerID: s.ProducerID, ProducerEpoch: s.ProducerEpoch, State: s.State,
				TimeoutMs: s.TimeoutMillis, Partitions: map[string][]int32{},
			}
			if err := kerr.ErrorForCode(s.ErrorCode); err != nil {
				d.Error = err.Error()
			}
			if s.StartTimestamp >= 0 {
				at := time.UnixMilli(s.StartTimestamp)
				d.Started = &at
			}
			for _, t := range s.Topics {
				d.Partitions[t.Topic] = t.Partitions
			}
			s.UnknownTags.Each(func(tag uint32, value []byte) {
				switch tag {
				case tagTxnClientID:
					d.ClientID = string(value)
				case tagTxnHost:
					d.ClientHost = strings.TrimPrefix(string(value), "/")
				}
			})
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b describedTxn) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}
