package api

import (
	"context"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn/marker"
	"github.com/kajamq/kaja/wire"
)

// writeTxnMarkers answers WriteTxnMarkers (key 27), versions 1-2, which coordinators send and `kafka-transactions abort`.
// v2 (KIP-1228) the version of the transaction, by which the marker's epoch is judged. A marker is answered when it is
// below the high watermark; for a partition of __consumer_offsets its group coordinator appends it. Errors, all per
// partition: 3, 6 (also while the group coordinator loads or is elsewhere), 7 (unknown), 19, 20, 47, 52, 56.
type writeTxnMarkers struct {
	images imageSource
	parts  replicaFinder
	groups *groupcoord.Service
	fence  marker.Fence
}

const markersVersionFrom = 2

func (h *writeTxnMarkers) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.WriteTxnMarkersRequest)
	if peer, proven := req.Conn.Peer(); proven {
		if attempt, ok := marker.AttemptOf(msg); ok {
			leave, err := h.fence.Enter(peer.NodeID, attempt)
			if err != nil {
				w.Reply(refusedMarkers(msg, err))
				return
			}
			defer leave()
		}
	}
	h.write(msg, func(resp *kmsg.WriteTxnMarkersResponse) { w.Reply(resp) })
}

// refusedMarkers answers every partition of a request with one error.
func refusedMarkers(msg *kmsg.WriteTxnMarkersRequest, err error) *kmsg.WriteTxnMarkersResponse {
	resp := msg.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	code := errorCode(err)
	for i := range msg.Markers {
		m := kmsg.NewWriteTxnMarkersResponseMarker()
		m.ProducerID = msg.Markers[i].ProducerID
		for _, in := range msg.Markers[i].Topics {
			t := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			t.Topic = in.Topic
			for _, p := range in.Partitions {
				t.Partitions = append(t.Partitions, kmsg.WriteTxnMarkersResponseMarkerTopicPartition{Partition: p, ErrorCode: code})
			}
			m.Topics = append(m.Topics, t)
		}
		resp.Markers = append(resp.Markers, m)
	}
	return resp
}

// write does what a request asks for. done is called once, possibly before write returns.
func (h *writeTxnMarkers) write(msg *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
	resp := msg.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	var mu sync.Mutex
	waiting := 1
	finish := func(code *int16, err error) {
		mu.Lock()
		if code != nil {
			*code = errorCode(err)
		}
		waiting--
		last := waiting == 0
		mu.Unlock()
		if last {
			done(resp)
		}
	}
	img := h.images.Image()
	resp.Markers = make([]kmsg.WriteTxnMarkersResponseMarker, len(msg.Markers))
	for i := range msg.Markers {
		in, out := &msg.Markers[i], &resp.Markers[i]
		out.ProducerID = in.ProducerID
		out.Topics = make([]kmsg.WriteTxnMarkersResponseMarkerTopic, len(in.Topics))
		m := coord.Marker{
			ProducerRef:      coord.ProducerRef{ID: wire.ProducerID(in.ProducerID), Epoch: wire.ProducerEpoch(in.ProducerEpoch)},
			CoordinatorEpoch: in.CoordinatorEpoch, Commit: in.Committed, V2: msg.Version >= markersVersionFrom && in.TransactionVersion >= 2,
		}
		for j := range in.Topics {
			t, ps := &in.Topics[j], make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(in.Topics[j].Partitions))
			out.Topics[j].Topic, out.Topics[j].Partitions = t.Topic, ps
			for k := range ps {
				p := &ps[k]
				p.Partition = t.Partitions[k]
				mu.Lock()
				waiting++
				mu.Unlock()
				h.append(img, t.Topic, wire.PartitionID(p.Partition), m, func(err error) { finish(&p.ErrorCode, err) })
			}
		}
	}
	finish(nil, nil)
}

// append brings one marker into one partition. done is called once.
func (h *writeTxnMarkers) append(img *image.Image, topic string, p wire.PartitionID, m coord.Marker, done func(error)) {
	part, err := findReplica(img, h.parts, topic, p)
	if err != nil {
		done(err)
		return
	}
	if topic == image.OffsetsTopic {
		h.groups.AppendMarker(p, m, func(err *kerr.Error) {
			if err != nil {
				done(err)
				return
			}
			done(nil)
		})
		return
	}
	if topic == image.TxnStateTopic {
		done(kerr.InvalidTopicException) // its coordinator alone writes there, and no transaction
		return
	}
	if err := part.AppendMarker(m, done); err != nil {
		done(err)
	}
}

// MarkerWriter writes markers to the partitions of this broker, for the coordinator in the same process.
type MarkerWriter struct{ h *writeTxnMarkers }

// NewMarkerWriter makes one; the arguments are kept.
func NewMarkerWriter(images imageSource, parts replicaFinder, groups *groupcoord.Service) *MarkerWriter {
	return &MarkerWriter{&writeTxnMarkers{images: images, parts: parts, groups: groups}}
}

// Write does what a WriteTxnMarkers request asks for. done is called once, possibly before Write returns.
func (w *MarkerWriter) Write(req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse)) {
	w.h.write(req, done)
}
