package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// blockedPartition is what holds back the read_committed consumers of one partition.
type blockedPartition struct {
	Topic         string        `json:"topic"`
	Partition     int32         `json:"partition"`
	LastStable    int64         `json:"last_stable_offset"`
	HighWatermark int64         `json:"high_watermark"`
	Behind        int64         `json:"behind"` // offsets that read_committed consumers do not see yet
	ProducerID    int64         `json:"producer_id"`
	ProducerEpoch int32         `json:"producer_epoch"`
	LastWrite     time.Time     `json:"last_write"`
	Hanging       bool          `json:"hanging"` // no coordinator will end it
	Transaction   *describedTxn `json:"transaction,omitempty"`
}

func (c *txnCommands) whyBlockedCommand() *cobra.Command {
	return &cobra.Command{
		Use: "why-blocked TOPIC", Short: "Say which transactions hold back the read_committed consumers of a topic", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				found, err := whyBlocked(ctx, client, args[0])
				if err != nil {
					return err
				}
				if len(found) == 0 && !c.json {
					_, err := fmt.Fprintf(c.stdout, "Nothing is blocked: in every partition of %s the last stable offset is the high watermark.\n", args[0])
					return err
				}
				rows := make([][]string, len(found))
				for i, b := range found {
					id, state, since, user := "-", "hanging: no coordinator knows it", b.LastWrite.UTC().Format(time.RFC3339), unknownUser
					if t := b.Transaction; t != nil {
						id, state, since, user = t.ID, t.State, t.started(), t.user()
						if b.Hanging {
							state = "hanging: the id has moved on (" + t.State + ")"
						}
					}
					rows[i] = []string{fmt.Sprint(b.Partition), fmt.Sprint(b.LastStable), fmt.Sprint(b.HighWatermark), fmt.Sprint(b.Behind),
						fmt.Sprintf("%d/%d", b.ProducerID, b.ProducerEpoch), id, state, since, user}
				}
				return c.print(found, "PARTITION\tLAST-STABLE\tHIGH-WATERMARK\tBEHIND\tPRODUCER\tTRANSACTIONAL-ID\tSTATE\tSINCE\tCLIENT", rows)
			})
		},
	}
}

func whyBlocked(ctx context.Context, client *kgo.Client, topic string) ([]blockedPartition, error) {
	adm := admin(client)
	stable, err := adm.ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = stable.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the last stable offsets of %s: %w", topic, err)
	}
	ends, err := adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	found := []blockedPartition{}
	for _, o := range stable[topic] {
		end, _ := ends.Lookup(topic, o.Partition)
		if o.Offset >= end.Offset {
			continue
		}
		b := blockedPartition{Topic: topic, Partition: o.Partition, LastStable: o.Offset, HighWatermark: end.Offset, Behind: end.Offset - o.Offset, ProducerID: -1}
		if err := b.find(ctx, client); err != nil {
			return nil, err
		}
		found = append(found, b)
	}
	slices.SortFunc(found, func(a, b blockedPartition) int { return int(a.Partition - b.Partition) })
	return found, nil
}

// find fills in who holds the last stable offset.
func (b *blockedPartition) find(ctx context.Context, client *kgo.Client) error {
	producers, err := partitionProducers(ctx, client, b.Topic, b.Partition)
	if err != nil {
		return err
	}
	for _, p := range producers {
		if p.CurrentTxnStartOffset >= 0 && p.CurrentTxnStartOffset <= b.LastStable {
			b.ProducerID, b.ProducerEpoch, b.LastWrite = p.ProducerID, p.ProducerEpoch, time.UnixMilli(p.LastTimestamp)
		}
	}
	if b.ProducerID < 0 {
		return nil // it has ended meanwhile, or its marker is not replicated yet
	}
	listed, err := listTxns(ctx, client, func(r *kmsg.ListTransactionsRequest) {
		r.ProducerIDFilters, r.DurationFilterMillis = []int64{b.ProducerID}, -1
	})
	if err != nil {
		return err
	}
	b.Hanging = true
	for _, l := range listed {
		described, err := describeTxns(ctx, client, []string{l.ID})
		if err != nil {
			return err
		}
		if len(described) != 1 || described[0].Error != "" {
			continue
		}
		d := described[0]
		b.Transaction = &d
		b.Hanging = !slices.Contains(d.Partitions[b.Topic], b.Partition)
	}
	return nil
}

func partitionProducers(ctx context.Context, client *kgo.Client, topic string, partition int32) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("describe the producers of %s-%d: %w", topic, partition, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("describe the producers of %s-%d: the answer is about something else", topic, partition)
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, fmt.Errorf("describe the producers of %s-%d: %w", topic, partition, err)
	}
	return p.ActiveProducers, nil
}

func (c *txnCommands) abortCommand() *cobra.Command {
	var topic string
	var partition int32
	var producer int64
	cmd := &cobra.Command{
		Use: "abort [ID]", Args: cobra.MaximumNArgs(1),
		Short: "Abort the transaction of an id and fence its producer, or a hanging one on one partition",
		Long: "With an ID its coordinator aborts the open transaction, and the producer that has it is fenced.\n" +
			"With --topic, --partition and --producer-id an abort marker is written to that partition: for a hanging\n" +
			"transaction, which no coordinator will end. `kaja txn why-blocked TOPIC` says which those are.",
		RunE: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (topic != "") {
				return errors.New("give either an id, or --topic, --partition and --producer-id")
			}
			return c.with(func(ctx context.Context, client *kgo.Client) error {
				if topic != "" {
					return c.abortHanging(ctx, client, topic, partition, producer)
				}
				return c.abortID(ctx, client, args[0])
			})
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "topic of a hanging transaction")
	cmd.Flags().Int32Var(&partition, "partition", 0, "partition of a hanging transaction")
	cmd.Flags().Int64Var(&producer, "producer-id", -1, "producer id of a hanging transaction")
	return cmd
}

// abortID fences the producer of an id, which aborts its transaction; an id that does not exist is not made.
func (c *txnCommands) abortID(ctx context.Context, client *kgo.Client, id string) error {
	described, err := describeTxns(ctx, client, []string{id})
	if err != nil {
		return err
	}
	if len(described) != 1 || described[0].Error != "" {
		return fmt.Errorf("%s: there is no such transactional id", id)
	}
	if described[0].State != "Ongoing" {
		_, err := fmt.Fprintf(c.stdout, "Nothing to abort: the transaction of %s is %s.\n", id, described[0].State)
		return err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, described[0].TimeoutMs, -1, -1
	for {
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return fmt.Errorf("fence the producer of %s: %w", id, err)
		}
		err = kerr.ErrorForCode(resp.ErrorCode)
		switch {
		case err == nil:
			_, err := fmt.Fprintf(c.stdout, "Aborted; the producer of %s is fenced.\n", id)
			return err
		case !errors.Is(err, kerr.ConcurrentTransactions):
			return fmt.Errorf("fence the producer of %s: %w", id, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("fence the producer of %s: the transaction is not ended yet: %w", id, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// abortHanging writes an abort marker as the partition's last coordinator would.
func (c *txnCommands) abortHanging(ctx context.Context, client *kgo.Client, topic string, partition int32, producer int64) error {
	producers, err := partitionProducers(ctx, client, topic, partition)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(producers, func(p kmsg.DescribeProducersResponseTopicPartitionActiveProducer) bool {
		return p.ProducerID == producer && p.CurrentTxnStartOffset >= 0
	})
	if i < 0 {
		return fmt.Errorf("producer %d has no open transaction in %s-%d", producer, topic, partition)
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{{
		ProducerID: producer, ProducerEpoch: int16(producers[i].ProducerEpoch), CoordinatorEpoch: max(producers[i].CoordinatorEpoch, 0),
		Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: topic, Partitions: []int32{partition}}},
	}}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return fmt.Errorf("write the abort marker: %w", err)
	}
	for _, m := range resp.Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("write the abort marker to %s-%d: %w", t.Topic, p.Partition, err)
				}
			}
		}
	}
	_, err = fmt.Fprintf(c.stdout, "Aborted the transaction of producer %d in %s-%d.\n", producer, topic, partition)
	return err
}
