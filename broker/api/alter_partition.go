package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterPartition answers AlterPartition (key 56), versions 2-3, of brokers that have proven who they are: what a leader
// asks for of its ISR. v3 the broker epochs of the members (KIP-903), and in a tagged field the epoch of the leader's log. Errors of all: 31 for another broker's id, 41, 77, 102;
// per partition: 3, 41, 42, 74, 95, 100, 107.
type alterPartition struct{ controller brokerController }

const alterWithEpochsFrom = 3

func (h alterPartition) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AlterPartitionRequest)
	resp := msg.ResponseKind().(*kmsg.AlterPartitionResponse)
	if !isPeer(req, wire.BrokerID(msg.BrokerID)) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		w.Reply(resp)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	results, err := h.controller.AlterPartitions(ctx, wire.BrokerID(msg.BrokerID), wire.BrokerEpoch(msg.BrokerEpoch), isrChanges(msg))
	if err != nil {
		resp.ErrorCode, _ = refusal(err)
		w.Reply(resp)
		return
	}
	for _, t := range msg.Topics {
		rt := kmsg.NewAlterPartitionResponseTopic()
		rt.TopidID = t.TopicID
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, alteredPartition(p.Partition, results[0]))
			results = results[1:]
		}
		resp.Topics = append(resp.Topics, rt)
	}
	w.Reply(resp)
}

func isrChanges(msg *kmsg.AlterPartitionRequest) []raftctl.ISRChange {
	var changes []raftctl.ISRChange
	for _, t := range msg.Topics {
		for _, p := range t.Partitions {
			ch := raftctl.ISRChange{
				TopicID: t.TopicID, Partition: wire.PartitionID(p.Partition), LeaderEpoch: wire.LeaderEpoch(p.LeaderEpoch),
				PartitionEpoch: wire.PartitionEpoch(p.PartitionEpoch), Recovering: p.LeaderRecoveryState == 1, LogEpoch: wire.LogEpochTag(&p.UnknownTags),
			}
			if msg.Version < alterWithEpochsFrom {
				for _, id := range p.NewISR {
					ch.ISR = append(ch.ISR, raftctl.ISRMember{ID: wire.BrokerID(id), Epoch: wire.NoBrokerEpoch})
				}
			} else {
				for _, m := range p.NewEpochISR {
					ch.ISR = append(ch.ISR, raftctl.ISRMember{ID: wire.BrokerID(m.BrokerID), Epoch: wire.BrokerEpoch(m.BrokerEpoch)})
				}
			}
			changes = append(changes, ch)
		}
	}
	return changes
}

func alteredPartition(id int32, r raftctl.ISRResult) kmsg.AlterPartitionResponseTopicPartition {
	rp := kmsg.NewAlterPartitionResponseTopicPartition()
	rp.Partition = id
	if r.Err != nil {
		rp.ErrorCode, _ = resultOf(r.Err)
		return rp
	}
	p := r.Partition
	rp.LeaderID, rp.LeaderEpoch, rp.PartitionEpoch, rp.ISR = int32(p.Leader), int32(p.LeaderEpoch), int32(p.PartitionEpoch), raw(p.ISR)
	if p.Recovering {
		rp.LeaderRecoveryState = 1
	}
	return rp
}
