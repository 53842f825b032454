package broker

import (
	"context"
	"slices"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// knownElsewhere is knownToCoordinator for the coordinators on other nodes.
func (b *Broker) knownElsewhere(ctx context.Context, tp wire.TopicPartition, id wire.ProducerID) (known, sure bool) {
	ask := b.asker("txn")
	topic, ok := b.Image().Topic(image.TxnStateTopic)
	if ask == nil || !ok {
		return false, true
	}
	asked := map[wire.BrokerID]bool{b.nodeID(): true}
	for _, p := range topic.Partitions {
		if p.Leader == wire.NoBroker {
			return false, false
		}
		if asked[p.Leader] {
			continue
		}
		asked[p.Leader] = true
		list := kmsg.NewPtrListTransactionsRequest()
		list.ProducerIDFilters = []int64{int64(id)}
		resp, err := ask(ctx, p.Leader, list)
		if err != nil || resp.(*kmsg.ListTransactionsResponse).ErrorCode != 0 {
			return false, false
		}
		for _, t := range resp.(*kmsg.ListTransactionsResponse).TransactionStates {
			describe := kmsg.NewPtrDescribeTransactionsRequest()
			describe.TransactionalIDs = []string{t.TransactionalID}
			resp, err := ask(ctx, p.Leader, describe)
			if err != nil {
				return false, false
			}
			if holds(resp.(*kmsg.DescribeTransactionsResponse), tp) {
				return true, true
			}
		}
	}
	return false, true
}

// holds reports whether a described transaction has a partition, or may have it: what was refused is not known.
func holds(resp *kmsg.DescribeTransactionsResponse, tp wire.TopicPartition) bool {
	return slices.ContainsFunc(resp.TransactionStates, func(s kmsg.DescribeTransactionsResponseTransactionState) bool {
		return s.ErrorCode != 0 || slices.ContainsFunc(s.Topics, func(t kmsg.DescribeTransactionsResponseTransactionStateTopic) bool {
			return t.Topic == tp.Topic && slices.Contains(t.Partitions, int32(tp.Partition))
		})
	})
}
