package eos

import (
	"context"
	"time"

	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// unknown is the code of a request of which nobody knows what became.
const unknown int16 = -1000

// ident is one incarnation of a producer.
type ident struct {
	id    int64
	epoch int16
}

// incarnation sends the requests of a transactional producer, once each; every method gives the code of the answer, or
// unknown.
type incarnation struct {
	c     *client
	txnID string
	v2    bool
	ident
}

// initProducer takes the next incarnation; an answer without error is noted.
func (p *incarnation) initProducer(ctx context.Context, timeout time.Duration) int16 {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &p.txnID, int32(timeout.Milliseconds())
	got, err := p.c.toCoordinator(ctx, 1, p.txnID, req)
	if err != nil {
		return unknown
	}
	resp := got.(*kmsg.InitProducerIDResponse)
	if resp.ErrorCode == 0 {
		p.ident = ident{resp.ProducerID, resp.ProducerEpoch}
	}
	return p.noted(resp.ErrorCode)
}

// noted makes the client look again for who is asked, if the answer says so.
func (p *incarnation) noted(code int16) int16 {
	p.c.note("%d/%d is answered %d", p.id, p.epoch, code)
	switch code {
	case kerr.NotLeaderForPartition.Code, kerr.NotCoordinator.Code, kerr.CoordinatorNotAvailable.Code, kerr.LeaderNotAvailable.Code,
		kerr.UnknownTopicOrPartition.Code, kerr.KafkaStorageError.Code, kerr.FencedLeaderEpoch.Code:
		p.c.forget()
	}
	return code
}

// addPartitions is AddPartitionsToTxn, which clients of version 1 send.
func (p *incarnation) addPartitions(ctx context.Context, tps []wire.TopicPartition) int16 {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, p.txnID, p.id, p.epoch
	for _, tp := range tps {
		req.Topics = append(req.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: tp.Topic, Partitions: []int32{int32(tp.Partition)}})
	}
	got, err := p.c.toCoordinator(ctx, 1, p.txnID, req)
	if err != nil {
		return unknown
	}
	for _, t := range got.(*kmsg.AddPartitionsToTxnResponse).Topics {
		for _, part := range t.Partitions {
			if part.ErrorCode != 0 {
				return p.noted(part.ErrorCode)
			}
		}
	}
	return 0
}

// produce sends one batch.
func (p *incarnation) produce(ctx context.Context, tp wire.TopicPartition, sequence int32, values []string) (code int16, base wire.Offset) {
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch, Transactional: true,
		Producer: &batch.Producer{ID: wire.ProducerID(p.id), Epoch: wire.ProducerEpoch(p.epoch), Sequence: sequence}})
	for _, v := range values {
		b.Add(batch.NewRecord{Timestamp: time.Now().UnixMilli(), Value: []byte(v)})
	}
	records, _, err := b.Build(nil, nil)
	if err != nil {
		panic(err) // the builder was used wrongly
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis, req.TransactionID = 11, -1, int32((answerWait / 2).Milliseconds()), &p.txnID
	if p.v2 {
		req.Version = 12
	}
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: tp.Topic, Partitions: []kmsg.ProduceRequestTopicPartition{
		{Partition: int32(tp.Partition), Records: records}}}}
	p.c.note("%s: %d records from sequence %d on", tp, len(values), sequence)
	got, err := p.c.toLeader(ctx, tp, req)
	if err != nil {
		return unknown, wire.NoOffset
	}
	part := got.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return p.noted(part.ErrorCode), wire.Offset(part.BaseOffset)
}

// addOffsets is AddOffsetsToTxn, which clients of version 1 send.
func (p *incarnation) addOffsets(ctx context.Context, group string) int16 {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = 3, p.txnID, p.id, p.epoch, group
	got, err := p.c.toCoordinator(ctx, 1, p.txnID, req)
	if err != nil {
		return unknown
	}
	return p.noted(got.(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
}

// stage is TxnOffsetCommit.
func (p *incarnation) stage(ctx context.Context, group string, tp wire.TopicPartition, offset int64) int16 {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = 3, p.txnID, group, p.id, p.epoch
	if p.v2 {
		req.Version = 5
	}
	o := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	o.Partition, o.Offset = int32(tp.Partition), offset
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: tp.Topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{o}}}
	got, err := p.c.toCoordinator(ctx, 0, group, req)
	if err != nil {
		return unknown
	}
	return p.noted(got.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// end is EndTxn; under version 2 the incarnation goes on with what the answer gives.
func (p *incarnation) end(ctx context.Context, commit bool) int16 {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 3, p.txnID, p.id, p.epoch, commit
	if p.v2 {
		req.Version = 5
	}
	got, err := p.c.toCoordinator(ctx, 1, p.txnID, req)
	if err != nil {
		return unknown
	}
	resp := got.(*kmsg.EndTxnResponse)
	if p.v2 && resp.ErrorCode == 0 {
		p.ident = ident{resp.ProducerID, resp.ProducerEpoch}
	}
	return p.noted(resp.ErrorCode)
}

// mark sends a marker, as a coordinator does.
func (p *incarnation) mark(ctx context.Context, tp wire.TopicPartition, commit bool) int16 {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = p.id, p.epoch, commit
	if p.v2 {
		req.Version, m.TransactionVersion = 2, 2
	}
	m.Topics = []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: tp.Topic, Partitions: []int32{int32(tp.Partition)}}}
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{m}
	got, err := p.c.toLeader(ctx, tp, req)
	if err != nil {
		return unknown
	}
	return p.noted(got.(*kmsg.WriteTxnMarkersResponse).Markers[0].Topics[0].Partitions[0].ErrorCode)
}

// groupOffset asks for the offset of a group; -1 is none.
func groupOffset(ctx context.Context, c *client, group string, tp wire.TopicPartition, stable bool) (code int16, offset int64) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.RequireStable = 7, group, stable
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: tp.Topic, Partitions: []int32{int32(tp.Partition)}}}
	got, err := c.toCoordinator(ctx, 0, group, req)
	if err != nil {
		return unknown, -1
	}
	resp := got.(*kmsg.OffsetFetchResponse)
	if resp.ErrorCode != 0 {
		c.forget()
		return resp.ErrorCode, -1
	}
	p := resp.Topics[0].Partitions[0]
	return p.ErrorCode, p.Offset
}

// listOffset gives the end of a partition, or with stable its last stable offset.
func listOffset(ctx context.Context, c *client, tp wire.TopicPartition, stable bool) (code int16, offset int64) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 6, -1
	if stable {
		req.IsolationLevel = 1
	}
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = int32(tp.Partition), -1
	req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: tp.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
	got, err := c.toLeader(ctx, tp, req)
	if err != nil {
		return unknown, -1
	}
	part := got.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	if part.ErrorCode != 0 {
		c.forget()
	}
	return part.ErrorCode, part.Offset
}
