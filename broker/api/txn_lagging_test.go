package api

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// addedTxns is a coordinator that takes everything and notes what it was given.
type addedTxns struct{ added, verified []wire.TopicPartition }

func (a *addedTxns) AddPartitions(r state.AddRequest, done func(*kerr.Error)) {
	a.added = append(a.added, r.Partitions...)
	done(nil)
}

func (a *addedTxns) Verify(r state.AddRequest, done func(state.VerifyReply)) {
	a.verified = append(a.verified, r.Partitions...)
	done(state.VerifyReply{})
}

func (a *addedTxns) Completed(string) (<-chan struct{}, func()) { return nil, func() {} }

func tp(topic string, p wire.PartitionID) wire.TopicPartition {
	return wire.TopicPartition{Topic: topic, Partition: p}
}

func addForNode(id string, verify bool, tps ...wire.TopicPartition) kmsg.AddPartitionsToTxnRequestTransaction {
	msg := enrollRequest(state.AddRequest{ID: id, Producer: state.Producer{ID: 5}, Client: state.V2, Partitions: tps})
	msg.Transactions[0].VerifyOnly = verify
	return msg.Transactions[0]
}

// A coordinator may not take a partition that its metadata does not have: when the transaction ends it would count the
// partition as deleted, and owe it no marker.
func TestAddPartitionsForNodesRefusesWhatTheCoordinatorDoesNotKnow(t *testing.T) {
	for _, version := range []int16{4, 5} {
		k := newDataKit(t)
		defer k.close()
		k.topic("old", 1)
		k.conn.SetPeer(peer.ID{NodeID: 2})
		var txns addedTxns
		msg := kmsg.NewPtrAddPartitionsToTxnRequest()
		msg.Transactions = append(msg.Transactions,
			addForNode("mixed", false, tp("old", 0), tp("old", 1), tp("new", 0)),
			addForNode("offsets", false, tp(image.OffsetsTopic, 0)),
			addForNode("known", false, tp("old", 0)),
			addForNode("verified", true, tp("new", 0)))
		resp := ask[*kmsg.AddPartitionsToTxnResponse](k, addPartitionsToTxn{image: k.Image, txns: &txns}.handle, msg, version)
		var got []int16
		for _, txn := range resp.Transactions {
			for _, topic := range txn.Topics {
				for _, p := range topic.Partitions {
					got = append(got, p.ErrorCode)
				}
			}
		}
		if want := []int16{55, 3, 3, 3, 0, 0}; !slices.Equal(got, want) {
			t.Errorf("v%d: codes %v, want %v", version, got, want)
		}
		if want := []wire.TopicPartition{tp("old", 0)}; !slices.Equal(txns.added, want) {
			t.Errorf("v%d: added %v, want %v", version, txns.added, want)
		}
		if want := []wire.TopicPartition{tp("new", 0)}; !slices.Equal(txns.verified, want) {
			t.Errorf("v%d: verified %v, want %v", version, txns.verified, want)
		}
	}
}

// txnProduceOf is a v2 producer's first batch of a transaction for partition 0 of each topic.
func txnProduceOf(topics ...string) *kmsg.ProduceRequest {
	var in []produced
	for _, topic := range topics {
		in = append(in, produced{topic, 0, values(10, 1, byProducer(5, 0, 0), func(s *batch.Spec) { s.Transactional = true })})
	}
	msg := produceRequest(-1, in...)
	id := "tx"
	msg.TransactionID = &id
	return msg
}

func (k *dataKit) produceTxn(e *enroller, topics ...string) (codes []int16) {
	k.t.Helper()
	h := &produce{images: k, parts: k, endpoints: k, codecs: k.codecs, enroll: e, wall: time.Now}
	resp := ask[*kmsg.ProduceResponse](k, h.handle, txnProduceOf(topics...), 12)
	for _, topic := range resp.Topics {
		codes = append(codes, topic.Partitions[0].ErrorCode)
	}
	return codes
}

// end is the high watermark of partition 0: without other replicas the end of its log.
func (k *dataKit) end(topic string) int64 {
	k.t.Helper()
	msg := fetchOf(0, 0, 1<<20, fetchTopic(topic, fetchPart(0, 0, 1<<20)))
	p := ask[*kmsg.FetchResponse](k, k.fetch.handle, msg, 12).Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		k.t.Fatalf("fetch of %s: error %d", topic, p.ErrorCode)
	}
	return p.HighWatermark
}

// The records of a producer wait until the coordinator on the other node knows the partition: nothing is appended, and
// the producer is told what makes it send them again.
func TestProduceWaitsForALaggingCoordinator(t *testing.T) {
	coordinator, leader := newDataKit(t), newDataKit(t)
	defer coordinator.close()
	defer leader.close()
	coordinator.conn.SetPeer(peer.ID{NodeID: 1})
	coordinator.topic("old", 1)
	leader.topic("old", 1)
	leader.topic("new", 1)
	leader.topic(image.TxnStateTopic, 1, 2)
	var txns addedTxns
	remote := newRemoteTxns(leader, 1, func(_ context.Context, _ wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
		return ask[*kmsg.AddPartitionsToTxnResponse](coordinator, addPartitionsToTxn{image: coordinator.Image, txns: &txns}.handle, req, 5), nil
	})
	e := &enroller{images: leader, elsewhere: remote}
	again := kerr.NotEnoughReplicas.Code
	if got := leader.produceTxn(e, "old", "new"); !slices.Equal(got, []int16{again, again}) {
		t.Errorf("coordinator lags: codes %v, want %d for each", got, again)
	}
	if len(txns.added) != 0 || leader.end("old") != 0 || leader.end("new") != 0 {
		t.Errorf("coordinator lags: added %v, ends %d and %d", txns.added, leader.end("old"), leader.end("new"))
	}
	coordinator.topic("new", 1)
	if got := leader.produceTxn(e, "old", "new"); !slices.Equal(got, []int16{0, 0}) {
		t.Errorf("coordinator caught up: codes %v", got)
	}
	if want := []wire.TopicPartition{tp("old", 0), tp("new", 0)}; !slices.Equal(txns.added, want) || leader.end("old") != 1 || leader.end("new") != 1 {
		t.Errorf("coordinator caught up: added %v, ends %d and %d", txns.added, leader.end("old"), leader.end("new"))
	}
}

// notPublished is an image that replicas have applied and requests don't see yet.
type notPublished struct{ img *image.Image }

func (n *notPublished) Image() *image.Image { return n.img }

// Replicas open before the image is published: a coordinator on the same node lags for that long too.
func TestProduceWaitsForTheImageOfItsOwnNode(t *testing.T) {
	k := newDataKit(t)
	defer k.close()
	late := &notPublished{k.Image()}
	k.topic("new", 1)
	var txns addedTxns
	e := &enroller{images: late, txns: &txns}
	if got := k.produceTxn(e, "new"); !slices.Equal(got, []int16{kerr.NotEnoughReplicas.Code}) || len(txns.added) != 0 || k.end("new") != 0 {
		t.Errorf("before the image is published: codes %v, added %v, end %d", got, txns.added, k.end("new"))
	}
	late.img = k.Image()
	if got := k.produceTxn(e, "new"); !slices.Equal(got, []int16{0}) || len(txns.added) != 1 || k.end("new") != 1 {
		t.Errorf("after: codes %v, added %v, end %d", got, txns.added, k.end("new"))
	}
}

// A commit of offsets is told what makes the client look for the coordinator and try again.
func TestTxnOffsetCommitWaitsForALaggingCoordinator(t *testing.T) {
	coordinator, leader := newDataKit(t), newDataKit(t)
	defer coordinator.close()
	defer leader.close()
	coordinator.conn.SetPeer(peer.ID{NodeID: 1})
	leader.topic(image.TxnStateTopic, 1, 2)
	var txns addedTxns
	e := &enroller{images: leader, elsewhere: newRemoteTxns(leader, 1, func(_ context.Context, _ wire.BrokerID, req kmsg.Request) (kmsg.Response, error) {
		return ask[*kmsg.AddPartitionsToTxnResponse](coordinator, addPartitionsToTxn{image: coordinator.Image, txns: &txns}.handle, req, 5), nil
	})}
	got := e.enroll(context.Background(), state.AddRequest{ID: "tx", Client: state.V2}, func() []wire.TopicPartition {
		return []wire.TopicPartition{tp(image.OffsetsTopic, 3)}
	})
	if got.err != kerr.CoordinatorNotAvailable || len(txns.added) != 0 {
		t.Fatalf("enrolled: %v, added %v", got, txns.added)
	}
	for version := range int16(7) {
		if c := (txnOffsetCommit{}).code(got.err, version); c != kerr.CoordinatorNotAvailable.Code {
			t.Errorf("v%d: code %d", version, c)
		}
	}
}
