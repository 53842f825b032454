package api

import (
	"context"
	"slices"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeTopicPartitions answers DescribeTopicPartitions (key 75), version 0 (KIP-966): topics in the order of their
// names from an inclusive cursor, a bounded number of partitions, and where to go on. Errors by topic: 3, 17; 42 for a
// cursor that fits no asked topic; by partition 5 and 72.
type describeTopicPartitions struct {
	images    imageSource
	endpoints endpointFinder
	limit     int // max.request.partition.size.limit
}

func (h describeTopicPartitions) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeTopicPartitionsRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	img := h.images.Image()
	all := len(msg.Topics) == 0
	names, ok := topicsToDescribe(img, msg)
	if !ok {
		for _, t := range msg.Topics {
			rt := describedError(t.Topic, kerr.InvalidRequest)
			rt.AuthorizedOperations = auth.OperationsNotAsked
			resp.Topics = append(resp.Topics, rt)
		}
		w.Reply(resp)
		return
	}
	a := &metadataAnswer{img: img, conn: req.Conn, version: 13, endpoints: h.endpoints}
	remaining := max(min(h.limit, int(msg.ResponsePartitionLimit)), 1)
	for _, name := range names {
		if remaining == 0 {
			resp.NextCursor = cursorAt(name, 0)
			break
		}
		t, ok := img.Topic(name)
		if !ok {
			if !all {
				err := kerr.UnknownTopicOrPartition
				if raftctl.InvalidTopicName(name) != "" {
					err = kerr.InvalidTopicException
				}
				resp.Topics = append(resp.Topics, describedError(name, err))
			}
			continue
		}
		first := 0
		if msg.Cursor != nil && msg.Cursor.Topic == name {
			first = int(msg.Cursor.Partition)
		}
		end := min(first+remaining, len(t.Partitions))
		resp.Topics = append(resp.Topics, a.described(t, first, end))
		if end < len(t.Partitions) {
			resp.NextCursor = cursorAt(name, int32(end))
			break
		}
		remaining -= max(end-first, 0)
	}
	w.Reply(resp)
}

// topicsToDescribe gives the names from the cursor on, sorted and each once; false if the cursor is not valid.
func topicsToDescribe(img *image.Image, msg *kmsg.DescribeTopicPartitionsRequest) ([]string, bool) {
	from := ""
	if msg.Cursor != nil {
		from = msg.Cursor.Topic
	}
	var names []string
	if len(msg.Topics) == 0 {
		for t := range img.TopicsFrom(from) {
			names = append(names, t.Name)
		}
	} else {
		for _, t := range msg.Topics {
			if t.Topic >= from {
				names = append(names, t.Topic)
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		if msg.Cursor != nil && !slices.Contains(names, from) {
			return nil, false
		}
	}
	return names, msg.Cursor == nil || msg.Cursor.Partition >= 0
}

func cursorAt(topic string, p int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, p
	return &c
}

func describedError(name string, err *kerr.Error) kmsg.DescribeTopicPartitionsResponseTopic {
	rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	rt.Topic, rt.ErrorCode, rt.IsInternal = &name, err.Code, image.IsInternal(name)
	rt.AuthorizedOperations = auth.TopicOperations()
	return rt
}

func (a *metadataAnswer) described(t *image.Topic, first, end int) kmsg.DescribeTopicPartitionsResponseTopic {
	rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
	rt.Topic, rt.TopicID, rt.IsInternal = &t.Name, t.ID, t.Internal()
	rt.AuthorizedOperations = auth.TopicOperations()
	for i := first; i < end; i++ {
		p := t.Partitions[i]
		rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		rp.Partition, rp.LeaderEpoch = int32(p.ID), int32(p.LeaderEpoch)
		rp.ErrorCode, rp.LeaderID = a.leader(p)
		rp.Replicas, rp.ISR, rp.OfflineReplicas = raw(p.Replicas), raw(p.ISR), a.offline(p)
		rp.EligibleLeaderReplicas, rp.LastKnownELR = raw(p.ELR), raw(p.LastKnownELR)
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
