package api

import (
	"context"
	"time"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeQuorum answers DescribeQuorum (key 55), versions 0-2: the members of the metadata log and how far each is, as it
// has said in its heartbeats, or where no broker is when the controller asked it; -1 where it has said nothing. v1 timestamps (KIP-836); v2 messages, directories and the
// controllers' endpoints (KIP-853). Only __cluster_metadata-0 can be asked for. Errors of all: 7, 31, 41; of the
// partition: 3.
type describeQuorum struct {
	quorum    quorumAdmin
	endpoints controllerEndpoints
}

func (h describeQuorum) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeQuorumRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeQuorumResponse)
	resp.ErrorMessage = new(string)
	if len(msg.Topics) != 1 || msg.Topics[0].Topic != clusterMetadataTopic || len(msg.Topics[0].Partitions) != 1 || msg.Topics[0].Partitions[0].Partition != 0 {
		w.Reply(noSuchQuorum(msg, resp))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	q, err := h.quorum.Quorum(ctx)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = refusal(err)
		w.Reply(resp)
		return
	}
	p := kmsg.NewDescribeQuorumResponseTopicPartition()
	p.ErrorMessage = new(string)
	p.LeaderID, p.LeaderEpoch, p.HighWatermark = int32(q.Leader), int32(q.Epoch), int64(q.End)
	for _, m := range q.Members {
		if m.Voter {
			p.CurrentVoters = append(p.CurrentVoters, replicaState(m))
			continue
		}
		p.Observers = append(p.Observers, replicaState(m))
	}
	rt := kmsg.NewDescribeQuorumResponseTopic()
	rt.Topic, rt.Partitions = clusterMetadataTopic, append(rt.Partitions, p)
	resp.Topics = append(resp.Topics, rt)
	resp.Nodes = h.nodes(q)
	w.Reply(resp)
}

func replicaState(m raftctl.MemberProgress) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = int32(m.ID.NodeID), m.ID.DirectoryID, int64(m.End)
	s.LastFetchTimestamp, s.LastCaughtUpTimestamp = millis(m.Heard), millis(m.CaughtUp)
	return s
}

// millis is -1 for the zero time: not known.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return wire.NoTimestamp
	}
	return t.UnixMilli()
}

// nodes are the voters' endpoints: of all of them, or of none, since tools look up each.
func (h describeQuorum) nodes(q raftctl.Quorum) []kmsg.DescribeQuorumResponseNode {
	nodes := []kmsg.DescribeQuorumResponseNode{}
	for _, m := range q.Members {
		if !m.Voter {
			continue
		}
		e, ok := h.endpoints(m.ID.NodeID)
		if !ok {
			return []kmsg.DescribeQuorumResponseNode{}
		}
		n, l := kmsg.NewDescribeQuorumResponseNode(), kmsg.NewDescribeQuorumResponseNodeListener()
		l.Name, l.Host, l.Port = e.Listener, e.Host, e.Port
		n.NodeID, n.Listeners = int32(m.ID.NodeID), append(n.Listeners, l)
		nodes = append(nodes, n)
	}
	return nodes
}

func noSuchQuorum(msg *kmsg.DescribeQuorumRequest, resp *kmsg.DescribeQuorumResponse) *kmsg.DescribeQuorumResponse {
	text := unknownPartition
	for _, t := range msg.Topics {
		rt := kmsg.NewDescribeQuorumResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeQuorumResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.ErrorMessage = p.Partition, kerr.UnknownTopicOrPartition.Code, &text
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

const unknownPartition = "This server does not host this topic-partition."
