package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// assignReplicasToDirs answers AssignReplicasToDirs (key 73), version 0, of brokers that have proven who they are: in which
// of its directories a broker holds its replicas (KIP-858). Errors of all: 31 for another broker's id, 41, 77, 102; per
// partition: 3, 6, 100.
type assignReplicasToDirs struct{ controller brokerController }

func (h assignReplicasToDirs) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AssignReplicasToDirsRequest)
	resp := msg.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	if !isPeer(req, wire.BrokerID(msg.BrokerID)) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		w.Reply(resp)
		return
	}
	var assignments []raftctl.DirAssignment
	for _, d := range msg.Directories {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				assignments = append(assignments, raftctl.DirAssignment{Directory: d.ID, TopicID: t.TopicID, Partition: wire.PartitionID(p.Partition)})
			}
		}
	}
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	results, err := h.controller.AssignDirs(ctx, wire.BrokerID(msg.BrokerID), wire.BrokerEpoch(msg.BrokerEpoch), assignments)
	if err != nil {
		resp.ErrorCode, _ = refusal(err)
		w.Reply(resp)
		return
	}
	for _, d := range msg.Directories {
		rd := kmsg.NewAssignReplicasToDirsResponseDirectory()
		rd.ID = d.ID
		for _, t := range d.Topics {
			rt := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			rt.TopicID = t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				rp.Partition = p.Partition
				rp.ErrorCode, _ = resultOf(results[0])
				results = results[1:]
				rt.Partitions = append(rt.Partitions, rp)
			}
			rd.Topics = append(rd.Topics, rt)
		}
		resp.Directories = append(resp.Directories, rd)
	}
	w.Reply(resp)
}
