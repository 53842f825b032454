package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce, key 0, versions 3-13 (advertised from 0 for the sake of librdkafka: KAFKA-18659; 0-2 close the connection).
//
//   - v5: log start offset. v7: zstd. v8 (KIP-467): record errors. v9: flexible. v10 (KIP-951): the leader with error 6.
//     v13 (KIP-516): topic ids instead of names.
//   - Order of checks (Kafka: KafkaApis.handleProduceRequest, ReplicaManager.appendRecords): transactional batches for
//     the whole request, topic id, partition, shape of the batch, acks, internal topic, leadership, min ISR, records,
//     producer state.
//   - Partitions fail alone; the others are stored.
//
// Transactions (KIP-890): before a partition's first batch of a transaction the transaction's coordinator is asked, in
// stage one. v11: 120 for a partition that is not in the transaction. v12: the broker adds it by itself.
//
// Errors: 2, 3, 6, 7, 10, 17, 18, 19, 20, 21, 32, 45, 47, 48, 51 (v12+), 56, 76, 87, 100, 120 (v11+), -1; for the whole
// request 49 when it holds batches of transactions of two producers, 53 when it holds one and names no transactional id.

const (
	// adminClientID may write to internal topics (Kafka: AdminUtils.ADMIN_CLIENT_ID).
	adminClientID = "__admin_client"
	// minFlushWait is for how long at least an answer waits for this broker's own disk. A client's timeout bounds the
	// wait for other replicas, and may be 0 where it expects none.
	minFlushWait = 5 * time.Second
)

type produce struct {
	images    imageSource
	parts     replicaFinder
	endpoints endpointFinder
	codecs    *compress.Codecs
	wall      func() time.Time
	enroll    *enroller
}

// produceRun is one request on its way.
type produceRun struct {
	*produce
	img      *image.Image
	req      *server.Request
	msg      *kmsg.ProduceRequest
	resp     kmsg.ProduceResponse
	failed   error // the first error of any partition
	waiting  []pendingAppend
	ownFlush bool
	admitted map[place]admitted // of transactional batches
	// The response's topics and partitions in the usual case, so that they need no memory of their own.
	oneTopic     [1]kmsg.ProduceResponseTopic
	onePartition [1]kmsg.ProduceResponseTopicPartition
}

// pendingAppend is one append whose answer has to wait.
type pendingAppend struct {
	part     *replica.Partition
	appended replica.Appended
	topic    int // place in the response
	index    int
}

func (h *produce) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ProduceRequest)
	r := &produceRun{produce: h, img: h.images.Image(), req: req, msg: msg, resp: kmsg.NewProduceResponse()}
	r.resp.Version = req.Version
	r.run(ctx)
	switch {
	case msg.Acks == 0 && r.failed != nil:
		w.Drop(fmt.Errorf("produce with acks=0 failed: %w", r.failed))
	case msg.Acks == 0:
		w.Drop(nil)
	case len(r.waiting) == 0:
		w.Reply(&r.resp)
	default:
		r.park(w)
	}
}

func (r *produceRun) run(ctx context.Context) {
	batches, refuse := r.txnBatches()
	if len(batches) > 0 && refuse == nil {
		r.admit(ctx, batches, r.topicName)
	}
	r.resp.Topics = r.oneTopic[:]
	if n := len(r.msg.Topics); n != 1 {
		r.resp.Topics = make([]kmsg.ProduceResponseTopic, n)
	}
	for i := range r.msg.Topics {
		in, out := &r.msg.Topics[i], &r.resp.Topics[i]
		out.Topic, out.TopicID = in.Topic, in.TopicID
		out.Partitions = r.onePartition[:]
		if n := len(in.Partitions); n != 1 || len(r.msg.Topics) != 1 {
			out.Partitions = make([]kmsg.ProduceResponseTopicPartition, n)
		}
		name, unknown := r.topicName(i)
		for j := range in.Partitions {
			p := &out.Partitions[j]
			p.Default()
			p.Partition, p.BaseOffset = in.Partitions[j].Partition, -1
			err := refuse
			if err == nil {
				err = unknown
			}
			if err == nil {
				err = r.append(name, in.Partitions[j].Records, p, i, j)
			}
			if err != nil {
				r.fail(name, p, err)
			}
		}
	}
}

// topicName is the name of the request's i-th topic.
func (r *produceRun) topicName(i int) (string, error) {
	in := &r.msg.Topics[i]
	if r.req.Version < 13 {
		return in.Topic, nil
	}
	t, ok := r.img.TopicByID(in.TopicID)
	if !ok {
		return in.Topic, kerr.UnknownTopicID
	}
	return t.Name, nil
}

// append does one partition and fills its answer in, except for an error.
func (r *produceRun) append(topic string, records []byte, out *kmsg.ProduceResponseTopicPartition, i, j int) error {
	id := wire.PartitionID(out.Partition)
	if _, ok := r.img.Partition(topic, id); !ok {
		return kerr.UnknownTopicOrPartition
	}
	b, err := oneBatch(records, r.req.Version)
	if err != nil {
		return err
	}
	if r.msg.Acks < -1 || r.msg.Acks > 1 {
		return kerr.InvalidRequiredAcks
	}
	if image.IsInternal(topic) && r.req.ClientID != adminClientID {
		return kerr.InvalidTopicException
	}
	part, err := findReplica(r.img, r.parts, topic, id)
	if err != nil {
		return err
	}
	if err = part.CheckProduce(r.msg.Acks); err != nil {
		return noteLogStart(err, part, out)
	}
	admission := r.admitted[place{i, j}]
	if admission.err != nil {
		return noteLogStart(admission.err, part, out)
	}
	v, err := log.Validate(b, log.ValidateOptions{Config: part.Config(), Now: r.wall(), ProduceVersion: r.req.Version, Codecs: r.codecs})
	if err != nil {
		return noteLogStart(err, part, out)
	}
	a, err := part.AppendTxn(v, admission.by, r.msg.Acks)
	if b.Transactional() && errors.Is(err, kerr.InvalidTxnState) {
		err = kerr.NotEnoughReplicas // what admitted it is gone meanwhile; the client sends it again, and the coordinator decides
	}
	if err != nil {
		return noteLogStart(err, part, out)
	}
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = int64(a.First), a.LogAppendTime, int64(a.LogStart)
	if a.Waits() && r.msg.Acks != 0 {
		r.waiting = append(r.waiting, pendingAppend{part, a, i, j})
		r.ownFlush = r.ownFlush || a.OwnFlush()
	}
	return nil
}

// oneBatch checks that records are one batch of the current format (Kafka: ProduceRequest.validateRecords). A piece of a
// batch after it is ignored.
func oneBatch(records []byte, version int16) (batch.Batch, error) {
	b, rest, err := batch.Next(records)
	if err != nil {
		if magic, ok := errors.AsType[*batch.MagicError](err); ok && magic.Magic >= 0 && magic.Magic < batch.Magic {
			return nil, kerr.InvalidRecord
		}
		if errors.Is(err, batch.ErrShort) {
			return nil, kerr.InvalidRecord
		}
		return nil, kerr.CorruptMessage
	}
	if len(rest) > 0 {
		if _, _, err := batch.Next(rest); !errors.Is(err, batch.ErrShort) {
			return nil, kerr.InvalidRecord
		}
	}
	if b.Codec() == compress.Zstd && version < 7 {
		return nil, kerr.UnsupportedCompressionType
	}
	return b, nil
}

// noteLogStart fills in the log start where Kafka does: not with errors that say that the partition is not served here or
// that the batch is too large or damaged.
func noteLogStart(err error, part *replica.Partition, out *kmsg.ProduceResponseTopicPartition) error {
	switch errorCode(err) {
	case kerr.CorruptMessage.Code, kerr.UnknownTopicOrPartition.Code, kerr.NotLeaderForPartition.Code, kerr.MessageTooLarge.Code,
		kerr.RecordListTooLarge.Code, kerr.KafkaStorageError.Code:
	default:
		out.LogStartOffset = int64(part.Offsets().LogStart)
	}
	return err
}

// fail fills in a partition's error.
func (r *produceRun) fail(topic string, out *kmsg.ProduceResponseTopicPartition, err error) {
	if r.failed == nil {
		r.failed = fmt.Errorf("%s-%d: %w", topic, out.Partition, err)
	}
	out.ErrorCode = errorCode(err)
	if v, ok := errors.AsType[*log.ValidationError](err); ok {
		if v.Message != "" && len(v.Records) > 0 { // as Kafka: a text only where single records are named
			out.ErrorMessage = &v.Message
		}
		for _, e := range v.Records {
			rec := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			rec.RelativeOffset = e.Index
			if e.Message != "" {
				rec.ErrorMessage = &e.Message
			}
			out.ErrorRecords = append(out.ErrorRecords, rec)
		}
	}
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && r.req.Version >= 10 {
		r.hint(topic, out)
	}
}

func (r *produceRun) hint(topic string, out *kmsg.ProduceResponseTopicPartition) {
	h := hintLeader(r.img, r.endpoints, r.req.Conn, topic, wire.PartitionID(out.Partition))
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(h.leader), int32(h.epoch)
	if !h.known {
		return
	}
	for _, b := range r.resp.Brokers {
		if b.NodeID == int32(h.leader) {
			return
		}
	}
	b := kmsg.NewProduceResponseBroker()
	b.NodeID, b.Host, b.Port, b.Rack = int32(h.leader), h.host, h.port, h.rack
	r.resp.Brokers = append(r.resp.Brokers, b)
}

// park answers when everything that was appended is what the acks ask for, or the timeout has passed. The frame is
// released before that: nothing here points into it but the topic names, which are strings.
func (r *produceRun) park(w server.Responder) {
	c := purgatory.NewCommit(len(r.waiting), kerr.RequestTimedOut, func(errs []error) {
		for k, err := range errs {
			if err == nil {
				continue
			}
			p := &r.waiting[k]
			out := &r.resp.Topics[p.topic].Partitions[p.index]
			r.img = r.images.Image()
			r.fail(p.part.TP.Topic, out, err)
		}
		w.Reply(&r.resp)
	})
	for k := range r.waiting {
		r.waiting[k].part.Watch(c, k, r.waiting[k].appended)
	}
	timeout := time.Duration(r.msg.TimeoutMillis) * time.Millisecond
	if r.ownFlush {
		timeout = max(timeout, minFlushWait)
	}
	r.msg = nil // points into the frame
	c.Start(timeout)
}
