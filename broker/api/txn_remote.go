package api

import (
	"context"

	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// NodeCaller sends a request to another node, on a connection on which both have proven who they are.
type NodeCaller func(ctx context.Context, node wire.BrokerID, req kmsg.Request) (kmsg.Response, error)

// remoteTxns asks transaction coordinators on other nodes. nil: there are no other nodes.
type remoteTxns struct {
	images imageSource
	node   wire.BrokerID
	ask    NodeCaller
}

func newRemoteTxns(images imageSource, node wire.BrokerID, ask NodeCaller) *remoteTxns {
	if ask == nil {
		return nil
	}
	return &remoteTxns{images: images, node: node, ask: ask}
}

// coordinator gives the node that coordinates a transactional id, if that is another one.
func (t *remoteTxns) coordinator(id string) (node wire.BrokerID, elsewhere bool) {
	if t == nil {
		return wire.NoBroker, false
	}
	topic, ok := t.images.Image().Topic(image.TxnStateTopic)
	if !ok {
		return wire.NoBroker, false
	}
	p, ok := topic.Partition(groupcoord.PartitionFor(id, len(topic.Partitions)))
	return p.Leader, ok && p.Leader != wire.NoBroker && p.Leader != t.node
}

// enroll adds the partitions of a client that bumps epochs, and verifies those of others (Kafka:
// AddPartitionsToTxnManager). Both may be repeated.
func (t *remoteTxns) enroll(ctx context.Context, to wire.BrokerID, r state.AddRequest) enrolled {
	resp, err := t.ask(ctx, to, enrollRequest(r))
	if err != nil {
		return enrolled{err: kerr.CoordinatorNotAvailable}
	}
	out := resp.(*kmsg.AddPartitionsToTxnResponse)
	if out.ErrorCode != 0 {
		return enrolled{err: protocolError(out.ErrorCode)}
	}
	if len(out.Transactions) != 1 {
		return enrolled{err: kerr.UnknownServerError}
	}
	var got enrolled
	for _, topic := range out.Transactions[0].Topics {
		for _, p := range topic.Partitions {
			switch p.ErrorCode {
			case 0:
			case kerr.UnknownTopicOrPartition.Code, kerr.OperationNotAttempted.Code:
				// That node's metadata is behind, or this one's: nothing was added, and it works or fails for good later.
				return enrolled{err: kerr.CoordinatorNotAvailable}
			case kerr.TransactionAbortable.Code:
				got.missing = append(got.missing, wire.TopicPartition{Topic: topic.Topic, Partition: wire.PartitionID(p.Partition)})
			default:
				return enrolled{err: protocolError(p.ErrorCode)}
			}
		}
	}
	return got
}

func enrollRequest(r state.AddRequest) *kmsg.AddPartitionsToTxnRequest {
	t := kmsg.NewAddPartitionsToTxnRequestTransaction()
	t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = r.ID, int64(r.Producer.ID), int16(r.Producer.Epoch), !r.Client.Bumps()
	at := map[string]int{}
	for _, tp := range r.Partitions {
		i, ok := at[tp.Topic]
		if !ok {
			i = len(t.Topics)
			at[tp.Topic] = i
			topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			topic.Topic = tp.Topic
			t.Topics = append(t.Topics, topic)
		}
		t.Topics[i].Partitions = append(t.Topics[i].Partitions, int32(tp.Partition))
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Transactions = append(req.Transactions, t)
	return req
}

func protocolError(code int16) *kerr.Error {
	if err := kerr.TypedErrorForCode(code); err != nil {
		return err
	}
	return kerr.UnknownServerError
}
