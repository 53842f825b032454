package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
)

// describeProducers answers DescribeProducers (key 61), version 0 (KIP-664): what a partition's leader knows of its
// producers. Errors, all per partition: 3, 6, 56.
type describeProducers struct {
	images imageSource
	parts  replicaFinder
}

func (h *describeProducers) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeProducersRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeProducersResponse)
	img := h.images.Image()
	for _, t := range msg.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = p
			part, err := findReplica(img, h.parts, t.Topic, wire.PartitionID(p))
			if err == nil {
				rp.ActiveProducers, err = activeProducers(part)
			}
			if err != nil {
				rp.ErrorCode = errorCode(err)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	w.Reply(resp)
}

func activeProducers(part *replica.Partition) ([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, error) {
	producers, err := part.Producers()
	out := make([]kmsg.DescribeProducersResponseTopicPartitionActiveProducer, 0, len(producers))
	for _, p := range producers {
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence = int64(p.ID), int32(p.Epoch), p.LastSequence
		a.LastTimestamp, a.CoordinatorEpoch, a.CurrentTxnStartOffset = p.LastTimestamp, p.CoordinatorEpoch, int64(p.TxnFirst)
		out = append(out, a)
	}
	return out, err
}
