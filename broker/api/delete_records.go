package api

import (
	"context"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords, key 21, versions 0-2 (v2: flexible).
//
//   - Offset -1 is the high watermark. What is deleted stays deleted: the new log start is durable before the answer.
//   - The answer waits until every live replica has said that its log starts there, at most for the request's timeout.
//
// Errors: 1, 3, 6, 7, 17 (internal topic), 44 (only compacted), 56.
type deleteRecords struct {
	images imageSource
	parts  replicaFinder
}

// pendingDeletion is one partition whose followers have to hear of the deletion.
type pendingDeletion struct {
	part     *replica.Partition
	deletion replica.Deletion
	topic    int // place in the response
	index    int
}

func (h *deleteRecords) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DeleteRecordsRequest)
	img := h.images.Image()
	resp := kmsg.NewPtrDeleteRecordsResponse()
	resp.Version = req.Version
	var waiting []pendingDeletion
	for i := range msg.Topics {
		t := &msg.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition, a.LowWatermark = p.Partition, int64(wire.NoOffset)
			part, d, err := h.delete(img, t.Topic, wire.PartitionID(p.Partition), wire.Offset(p.Offset))
			switch {
			case err != nil:
				a.ErrorCode = errorCode(err)
			case d.Waits():
				waiting = append(waiting, pendingDeletion{part, d, i, j})
			default:
				a.LowWatermark = int64(d.Low)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(waiting) == 0 {
		w.Reply(resp)
		return
	}
	c := purgatory.NewCommit(len(waiting), kerr.RequestTimedOut, func(errs []error) {
		for k, err := range errs {
			a := &resp.Topics[waiting[k].topic].Partitions[waiting[k].index]
			if a.ErrorCode = errorCode(err); err == nil {
				a.LowWatermark = int64(waiting[k].part.LowWatermark())
			}
		}
		w.Reply(resp)
	})
	for k := range waiting {
		waiting[k].part.WatchDeletion(c, k, waiting[k].deletion)
	}
	c.Start(time.Duration(msg.TimeoutMillis) * time.Millisecond)
}

func (h *deleteRecords) delete(img *image.Image, topic string, p wire.PartitionID, to wire.Offset) (*replica.Partition, replica.Deletion, error) {
	if _, ok := img.Partition(topic, p); !ok {
		return nil, replica.Deletion{}, kerr.UnknownTopicOrPartition
	}
	if image.IsInternal(topic) {
		return nil, replica.Deletion{}, kerr.InvalidTopicException
	}
	part, err := findReplica(img, h.parts, topic, p)
	if err != nil {
		return nil, replica.Deletion{}, err
	}
	d, err := part.DeleteRecords(to)
	return part, d, err
}
