package api

import (
	"context"
	"fmt"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// electLeaders answers ElectLeaders (key 43), versions 0-2. v1 the kind of the election (KIP-460) and an error of all. A
// null list stands for every partition; those that need no election are then left out. Errors of all: 7, 31, 41, 42; per
// partition: 3, 80, 83, 84.
type electLeaders struct {
	images  imageSource
	elector quorumAdmin
}

func (h electLeaders) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ElectLeadersRequest)
	resp := msg.ResponseKind().(*kmsg.ElectLeadersResponse)
	kind := raftctl.Election(msg.ElectionType)
	if req.Version == 0 {
		kind = raftctl.PreferredElection
	}
	if kind != raftctl.PreferredElection && kind != raftctl.UncleanElection {
		w.Reply(electionFailed(msg, &raftctl.Error{Code: kerr.InvalidRequest, Message: fmt.Sprintf("Unknown election type %d", kind)}))
		return
	}
	var names []raftctl.PartitionName
	for _, t := range msg.Topics {
		for _, p := range t.Partitions {
			names = append(names, raftctl.PartitionName{Topic: t.Topic, Partition: wire.PartitionID(p)})
		}
	}
	if msg.Topics != nil && names == nil {
		names = []raftctl.PartitionName{}
	}
	ctx, cancel := withTimeout(ctx, msg.TimeoutMillis)
	defer cancel()
	results, err := h.elector.ElectLeaders(ctx, kind, names)
	if err != nil {
		w.Reply(electionFailed(msg, err))
		return
	}
	at := map[raftctl.PartitionName]*raftctl.Error{}
	for _, r := range results {
		at[r.PartitionName] = r.Err
	}
	if msg.Topics != nil {
		for _, t := range msg.Topics {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, elected(p, at[raftctl.PartitionName{Topic: t.Topic, Partition: wire.PartitionID(p)}]))
			}
			resp.Topics = append(resp.Topics, rt)
		}
		w.Reply(resp)
		return
	}
	for t := range h.images.Image().Topics() { // also those of which no partition needs an election
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Name
		for _, p := range t.Partitions {
			if err, ok := at[raftctl.PartitionName{Topic: t.Name, Partition: p.ID}]; ok {
				rt.Partitions = append(rt.Partitions, elected(int32(p.ID), err))
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	w.Reply(resp)
}

func elected(p int32, err *raftctl.Error) kmsg.ElectLeadersResponseTopicPartition {
	rp := kmsg.NewElectLeadersResponseTopicPartition()
	rp.Partition = p
	rp.ErrorCode, rp.ErrorMessage = resultOf(err)
	if err != nil && rp.ErrorMessage == nil {
		rp.ErrorMessage = electionText(err.Code)
	}
	return rp
}

// electionText is Kafka's text of a code, which this API sends along.
func electionText(code *kerr.Error) *string {
	text := ""
	switch code {
	case kerr.ElectionNotNeeded:
		text = "Leader election not needed for topic partition."
	case kerr.PreferredLeaderNotAvailable:
		text = "The preferred leader was not available."
	case kerr.EligibleLeadersNotAvailable:
		text = "Eligible topic partition leaders are not available."
	default:
		return nil
	}
	return &text
}

// electionFailed answers every partition of a request with an error (Kafka: ElectLeadersRequest.getErrorResponse).
func electionFailed(msg *kmsg.ElectLeadersRequest, err error) *kmsg.ElectLeadersResponse {
	resp := msg.ResponseKind().(*kmsg.ElectLeadersResponse)
	code, text := refusal(err)
	resp.ErrorCode = code
	for _, t := range msg.Topics {
		rt := kmsg.NewElectLeadersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewElectLeadersResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.ErrorMessage = p, code, text
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
