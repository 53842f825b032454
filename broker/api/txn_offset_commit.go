package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

// txnOffsetCommit answers TxnOffsetCommit (key 28), versions 0-6: offsets that become visible when the transaction
// commits. v2 leader epochs (KIP-320); v3 member, instance and generation (KIP-447); v4 (KIP-890) TRANSACTION_ABORTABLE;
// v5 (KIP-890) adds the group's offsets partition to the transaction by itself; v6 (KIP-1319) topic ids instead of names.
// Errors, all per partition: 3, 12, 14 (15 in v0-1), 15, 16, 22, 25, 47, 48, 49, 51 (v5+), 69 (v6), 82, 90, 100 (v6),
// 120 (v4+).
type txnOffsetCommit struct {
	image  func() *image.Image
	parts  replicaFinder
	groups *groupcoord.Service
	enroll *enroller
}

const (
	txnCommitLoadingFrom   = 2
	txnCommitAbortableFrom = 4
	txnCommitAddsFrom      = 5
	txnCommitTopicIDsFrom  = 6
)

func (h txnOffsetCommit) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.TxnOffsetCommitRequest)
	resp, r := h.resolve(msg)
	if len(r.Topics) == 0 {
		w.Reply(resp)
		return
	}
	guard, err := h.admit(ctx, req, msg)
	if err != nil {
		h.fill(resp, func() int16 { return h.code(err, msg.Version) })
		w.Reply(resp)
		return
	}
	r.Txn = &coord.ProducerRef{ID: wire.ProducerID(msg.ProducerID), Epoch: wire.ProducerEpoch(msg.ProducerEpoch), Guard: guard}
	h.groups.CommitOffsets(r, func(stored *kmsg.OffsetCommitResponse) {
		var codes []int16
		for _, t := range stored.Topics {
			for _, p := range t.Partitions {
				codes = append(codes, p.ErrorCode)
			}
		}
		h.fill(resp, func() int16 {
			c := codes[0]
			codes = codes[1:]
			if c == kerr.CoordinatorLoadInProgress.Code && msg.Version < txnCommitLoadingFrom {
				return kerr.CoordinatorNotAvailable.Code // clients before 2.0 do not survive 14 (KAFKA-7296)
			}
			if c == kerr.InvalidTxnState.Code {
				return kerr.CoordinatorNotAvailable.Code // the guard is gone meanwhile; asked again, the coordinator decides
			}
			return c
		})
		w.Reply(resp)
	})
}

// fill gives every partition that is open still its code, in order.
func (h txnOffsetCommit) fill(resp *kmsg.TxnOffsetCommitResponse, next func() int16) {
	for i := range resp.Topics {
		ps := resp.Topics[i].Partitions
		for j := range ps {
			if ps[j].ErrorCode == openPartition {
				ps[j].ErrorCode = next()
			}
		}
	}
}

// admit makes sure that the transaction's coordinator knows of the group's offsets partition, and gives the guard that
// the partition asks for; 0 when the transaction is open there.
func (h txnOffsetCommit) admit(ctx context.Context, req *server.Request, msg *kmsg.TxnOffsetCommitRequest) (uint64, *kerr.Error) {
	p, ok := h.groups.Partition(msg.Group)
	if !ok {
		return 0, kerr.NotCoordinator
	}
	part, ok := h.parts.ByName(image.OffsetsTopic, p)
	if !ok {
		return 0, kerr.NotCoordinator
	}
	r := state.AddRequest{ID: msg.TransactionalID, Producer: txnProducer(msg.ProducerID, msg.ProducerEpoch), User: txnClient(req)}
	if msg.Version >= txnCommitAddsFrom {
		r.Client = state.V2
	}
	guard, refused := uint64(0), error(nil)
	got := h.enroll.enroll(ctx, r, func() []wire.TopicPartition {
		guard, refused = part.BeginTxn(r.Producer.ID, r.Producer.Epoch, wire.NoSequence)
		if guard == 0 {
			return nil
		}
		return []wire.TopicPartition{part.TP}
	})
	switch {
	case refused != nil:
		return 0, kerr.NotCoordinator
	case got.err == kerr.NotCoordinator:
		return 0, kerr.CoordinatorNotAvailable // that of the transaction; where the group's is, the client knows
	case got.err != nil:
		return 0, got.err
	case len(got.missing) > 0 && msg.Version >= txnCommitAbortableFrom:
		return 0, kerr.TransactionAbortable
	case len(got.missing) > 0:
		return 0, kerr.InvalidTxnState
	}
	return guard, nil
}

// code maps what the transaction's coordinator says. A coordinator that can't tell is to this client one that is not available.
func (h txnOffsetCommit) code(err *kerr.Error, version int16) int16 {
	switch err {
	case kerr.ProducerFenced:
		return kerr.InvalidProducerEpoch.Code
	case kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable:
		return kerr.CoordinatorNotAvailable.Code
	case kerr.ConcurrentTransactions:
		if version < txnCommitAddsFrom {
			return kerr.CoordinatorNotAvailable.Code
		}
	}
	return err.Code
}

// resolve splits the request into the whole response, in which partitions that do not exist have their error, and what
// the coordinator shall store. Partitions that are open still are marked by openPartition.
func (h txnOffsetCommit) resolve(msg *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, offsets.CommitRequest) {
	img := h.image()
	byID := msg.Version >= txnCommitTopicIDsFrom
	r := offsets.CommitRequest{
		Version: msg.Version, Group: msg.Group, MemberID: msg.MemberID, InstanceID: msg.InstanceID, Generation: msg.Generation, Retention: -1,
	}
	if msg.Version < 3 {
		r.Generation = -1
	}
	resp := msg.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	for _, t := range msg.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		topic, known := resolveTopic(img, byID, t.Topic, t.TopicID)
		var store offsets.CommitTopic
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, committable(topic, known, byID, p.Partition)
			if rp.ErrorCode == openPartition {
				c := kmsg.NewOffsetCommitRequestTopicPartition()
				c.Partition, c.Offset, c.LeaderEpoch, c.Metadata = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata
				if msg.Version < 2 {
					c.LeaderEpoch = int32(wire.NoLeaderEpoch)
				}
				store.Partitions = append(store.Partitions, c)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		if len(store.Partitions) > 0 {
			store.Name, store.ID = topic.Name, topic.ID
			r.Topics = append(r.Topics, store)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp, r
}
