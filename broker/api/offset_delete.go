package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// offsetDelete answers OffsetDelete (key 47), version 0 (KIP-496). Errors: 14, 15, 16, 24, 68, 69 for the whole, then
// without topics; per partition 3, 86.
type offsetDelete struct {
	image  func() *image.Image // what a whole request is answered from
	groups *groupcoord.Service
}

func (h offsetDelete) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.OffsetDeleteRequest)
	img := h.image()
	var known []kmsg.OffsetDeleteRequestTopic
	var unknown []kmsg.OffsetDeleteResponseTopic
	for _, t := range msg.Topics {
		topic, ok := img.Topic(t.Topic)
		ask, gone := t, kmsg.NewOffsetDeleteResponseTopic()
		ask.Partitions, gone.Topic = nil, t.Topic
		for _, p := range t.Partitions {
			exists := ok
			if ok {
				_, exists = topic.Partition(wire.PartitionID(p.Partition))
			}
			if exists {
				ask.Partitions = append(ask.Partitions, p)
				continue
			}
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			gone.Partitions = append(gone.Partitions, rp)
		}
		if len(ask.Partitions) > 0 {
			known = append(known, ask)
		}
		if len(gone.Partitions) > 0 {
			unknown = append(unknown, gone)
		}
	}
	h.groups.DeleteOffsets(msg.Group, known, func(resp *kmsg.OffsetDeleteResponse) {
		if resp.ErrorCode == 0 {
			mergeOffsetDelete(resp, unknown)
		}
		resp.Version = msg.Version
		w.Reply(resp)
	})
}

// mergeOffsetDelete adds partitions to the topics of the response, which names each topic once.
func mergeOffsetDelete(resp *kmsg.OffsetDeleteResponse, more []kmsg.OffsetDeleteResponseTopic) {
	at := make(map[string]int, len(resp.Topics))
	for i := range resp.Topics {
		at[resp.Topics[i].Topic] = i
	}
	for _, t := range more {
		i, ok := at[t.Topic]
		if !ok {
			resp.Topics = append(resp.Topics, t)
			continue
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, t.Partitions...)
	}
}
