package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch, key 23, versions 2-4: where an epoch ends in the leader's log (KIP-320).
//
//   - v3: replica id; consumers send -2. v4: flexible.
//   - An epoch that the leader does not know gives epoch -1 and offset -1 without an error, or 6 from a leader that may
//     have been replaced without its knowing.
//
// Errors: 3, 6, 56, 74, 75.
type offsetForLeaderEpoch struct {
	images imageSource
	parts  replicaFinder
}

func (h *offsetForLeaderEpoch) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.OffsetForLeaderEpochRequest)
	img := h.images.Image()
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = req.Version
	for i := range msg.Topics {
		t := &msg.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			out.Partitions = append(out.Partitions, h.answer(img, t.Topic, &t.Partitions[j]))
		}
		resp.Topics = append(resp.Topics, out)
	}
	w.Reply(resp)
}

func (h *offsetForLeaderEpoch) answer(img *image.Image, topic string, p *kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	a := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	a.Partition, a.LeaderEpoch, a.EndOffset = p.Partition, int32(wire.NoLeaderEpoch), int64(wire.NoOffset)
	part, err := findReplica(img, h.parts, topic, wire.PartitionID(p.Partition))
	if err == nil {
		end, epochErr := part.EpochEnd(wire.LeaderEpoch(p.CurrentLeaderEpoch), wire.LeaderEpoch(p.LeaderEpoch))
		if err = epochErr; err == nil {
			a.LeaderEpoch, a.EndOffset = int32(end.Epoch), int64(end.End)
		}
	}
	a.ErrorCode = readErrorCode(err)
	return a
}
