package api

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/wire"
)

// findCoordinator answers FindCoordinator (key 10), versions 0-6. v1 types and messages; v4 many keys (KIP-699); v6
// share coordinators. A group's coordinator leads the partition of __consumer_offsets that the group hashes to; the
// topic is created on first use, and the answer waits until its coordinator serves, here or on another node, so that a
// client's first join succeeds at once. The same for transactional ids and __transaction_state. Errors: 15; 42 for share groups and for types
// that do not exist.
type findCoordinator struct {
	image     func() *image.Image
	endpoints endpointFinder
	topic     offsetsTopic
	groups    *groupcoord.Service
	txnTopic  txnTopic
	txns      *txn.Service
	node      wire.BrokerID
	remote    *remoteCoordinators // nil: there are no other nodes
}

// offsetsTopic creates __consumer_offsets with the broker's settings. It returns when the image that has the topic is
// published, also if somebody else created it meanwhile.
type offsetsTopic interface {
	EnsureOffsetsTopic(ctx context.Context) error
}

// txnTopic creates __transaction_state with the broker's settings. It returns when the image that has the topic is
// published, also if somebody else created it meanwhile.
type txnTopic interface {
	Ensure(ctx context.Context) error
}

const (
	coordinatorGroup = 0
	coordinatorTxn   = 1
	coordinatorShare = 2

	findBatchFrom = 4 // keys instead of one key
)

// How long an answer waits: for the topic to be created and its coordinator to serve, for the first leader on another node, too; and
// for any other coordinator that is just loading, where Kafka's answer would be followed by COORDINATOR_LOAD_IN_PROGRESS.
const (
	firstUseWait = 2 * time.Second
	loadingWait  = 100 * time.Millisecond
)

// Kafka's texts of the codes that FindCoordinator carries in a message.
const (
	textNone           = "NONE"
	textNotAvailable   = "The coordinator is not available."
	textInvalidRequest = "This most likely occurs because of a request being malformed by the client library or the message" +
		" was sent to an incompatible broker. See the broker logs for more details."
)

// found is one coordinator, or why there is none.
type found struct {
	err  *kerr.Error
	text string // of err
	node wire.BrokerID
	host string
	port int32
	// told says that text is sent also where there is a message per key.
	told bool
}

func notFound(err *kerr.Error, text string) found {
	return found{err: err, text: text, node: wire.NoBroker, port: -1}
}

// handle answers a client in its turn, and another node's questions side by side: they come on one connection for all of its clients,
// at most one for each partition at a time, and would wait for each other's coordinators. Their keys do not alias the frame. The
// goroutine ends after firstUseWait at the latest.
func (h findCoordinator) handle(ctx context.Context, req *server.Request, w server.Responder) {
	if _, node := req.Conn.Peer(); node {
		go h.answer(ctx, req, w)
		return
	}
	h.answer(ctx, req, w)
}

func (h findCoordinator) answer(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.FindCoordinatorRequest)
	kind := msg.CoordinatorType
	if msg.Version == 0 {
		kind = coordinatorGroup
	}
	resp := kmsg.NewPtrFindCoordinatorResponse()
	resp.Version = msg.Version
	ctx, cancel := context.WithTimeout(ctx, firstUseWait) // for all keys together
	defer cancel()
	if msg.Version < findBatchFrom {
		f := h.find(ctx, req.Conn, kind, msg.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port, resp.ErrorMessage = int32(f.node), f.host, f.port, &f.text
		if f.err != nil {
			resp.ErrorCode = f.err.Code
		}
		w.Reply(resp)
		return
	}
	for _, key := range msg.CoordinatorKeys {
		f := h.find(ctx, req.Conn, kind, key)
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Host, c.Port, c.ErrorMessage = key, int32(f.node), f.host, f.port, new(string)
		if f.err != nil {
			c.ErrorCode = f.err.Code
		}
		if f.told {
			c.ErrorMessage = &f.text
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	w.Reply(resp)
}

func (h findCoordinator) find(ctx context.Context, conn *server.Conn, kind int8, key string) found {
	switch kind {
	case coordinatorGroup:
		return h.findIn(ctx, conn, coordinatorTopic{coordinatorGroup, image.OffsetsTopic, h.topic.EnsureOffsetsTopic, h.groups.WaitActive}, key)
	case coordinatorTxn:
		return h.findIn(ctx, conn, coordinatorTopic{coordinatorTxn, image.TxnStateTopic, h.txnTopic.Ensure, h.txns.WaitActive}, key)
	case coordinatorShare:
		return notFound(kerr.InvalidRequest, textInvalidRequest)
	}
	f := notFound(kerr.InvalidRequest, textInvalidRequest)
	f.told = true
	return f
}

// coordinatorTopic is a topic whose partitions' leaders coordinate what hashes to them.
type coordinatorTopic struct {
	kind   int8
	name   string
	ensure func(ctx context.Context) error
	active func(ctx context.Context, key string) error // returns once the coordinator of key serves here
}

func (h findCoordinator) findIn(ctx context.Context, conn *server.Conn, in coordinatorTopic, key string) found {
	wait := loadingWait
	topic, ok := h.image().Topic(in.name)
	if !ok {
		wait = firstUseWait
		until, cancel := context.WithTimeout(ctx, firstUseWait)
		err := in.ensure(until)
		cancel()
		if err == nil {
			topic, ok = h.image().Topic(in.name)
		}
		if !ok {
			return notFound(kerr.CoordinatorNotAvailable, textNotAvailable)
		}
	}
	p, ok := topic.Partition(groupcoord.PartitionFor(key, len(topic.Partitions)))
	if !ok || p.Leader == wire.NoBroker {
		return notFound(kerr.CoordinatorNotAvailable, textNotAvailable)
	}
	host, port, ok := h.endpoints.Endpoint(conn, p.Leader)
	if !ok {
		return notFound(kerr.CoordinatorNotAvailable, textNotAvailable)
	}
	if p.Leader == h.node {
		until, cancel := context.WithTimeout(ctx, wait)
		_ = in.active(until, key) // not ready in time: the client meets 14 and tries again
		cancel()
	} else {
		if p.LeaderEpoch == 0 { // and not seen to serve: it may not have heard of the topic
			wait = firstUseWait
		}
		h.remote.wait(ctx, conn, in.name, p, in.kind, key, wait)
	}
	return found{text: textNone, node: p.Leader, host: host, port: port}
}
