package api

import (
	"context"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListOffsets, key 2, versions 1-11.
//
//   - v2: isolation level. v4 (KIP-320): leader epochs. v5 (KIP-207): 78. v6: flexible. v7 (KIP-734): max timestamp. v8
//     (KIP-405): earliest local. v9 (KIP-1005): latest tiered. v10: timeout for remote storage, of which there is none.
//     v11 (KIP-1023): earliest pending upload.
//   - Nothing is tiered: earliest local is earliest, latest tiered and earliest pending upload are unknown (-1).
//   - Replica id -1 is a consumer, -2 a tool. A broker's id is taken only on a connection that has proven to be its own; it
//     is told the log end.
//
// Errors: 3, 5 (instead of 78 below v5), 6, 31, 35, 42, 56, 74, 75, 78.

// Special timestamps.
const (
	latestTimestamp        = -1
	earliestTimestamp      = -2
	maxTimestamp           = -3
	earliestLocalTimestamp = -4
	latestTieredTimestamp  = -5
	pendingUploadTimestamp = -6
)

// consumerReplica is the replica id of a consumer.
const consumerReplica = -1

type listOffsets struct {
	images imageSource
	parts  replicaFinder
}

func (h *listOffsets) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ListOffsetsRequest)
	img := h.images.Image()
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = req.Version
	twice := duplicates(msg)
	stranger := msg.ReplicaID >= 0 && !isPeer(req, wire.BrokerID(msg.ReplicaID))
	for i := range msg.Topics {
		t := &msg.Topics[i]
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		out.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, 0, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewListOffsetsResponseTopicPartition()
			a.Partition, a.Timestamp, a.Offset, a.LeaderEpoch = p.Partition, -1, -1, -1
			tp := wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p.Partition)}
			if stranger {
				a.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			} else if n := twice[tp]; n > 1 {
				a.ErrorCode = kerr.InvalidRequest.Code
			} else if found, err := h.find(img, msg, tp, p); err != nil {
				a.ErrorCode = h.code(err, req.Version)
			} else {
				a.Timestamp, a.Offset, a.LeaderEpoch = found.Timestamp, int64(found.Offset), int32(found.Epoch)
			}
			out.Partitions = append(out.Partitions, a)
		}
		resp.Topics = append(resp.Topics, out)
	}
	w.Reply(resp)
}

// duplicates counts how often each partition is named, if any is named twice.
func duplicates(msg *kmsg.ListOffsetsRequest) map[wire.TopicPartition]int {
	n := 0
	for i := range msg.Topics {
		n += len(msg.Topics[i].Partitions)
	}
	if n < 2 {
		return nil
	}
	seen := make(map[wire.TopicPartition]int, n)
	for i := range msg.Topics {
		for j := range msg.Topics[i].Partitions {
			seen[wire.TopicPartition{Topic: msg.Topics[i].Topic, Partition: wire.PartitionID(msg.Topics[i].Partitions[j].Partition)}]++
		}
	}
	return seen
}

// code is errorCode, except that a client that does not know 78 is told to come again.
func (h *listOffsets) code(err error, version int16) int16 {
	code := readErrorCode(err)
	if code == kerr.OffsetNotAvailable.Code && version < 5 {
		return kerr.LeaderNotAvailable.Code
	}
	return code
}

// supportedTimestamp reports whether a version knows a timestamp.
func supportedTimestamp(ts int64, version int16) bool {
	switch ts {
	case maxTimestamp:
		return version >= 7
	case earliestLocalTimestamp:
		return version >= 8
	case latestTieredTimestamp:
		return version >= 9
	case pendingUploadTimestamp:
		return version >= 11
	}
	return ts >= earliestTimestamp
}

func (h *listOffsets) find(img *image.Image, msg *kmsg.ListOffsetsRequest, tp wire.TopicPartition, p *kmsg.ListOffsetsRequestTopicPartition) (replica.TimestampOffset, error) {
	none := replica.TimestampOffset{Timestamp: wire.NoTimestamp, Offset: wire.NoOffset, Epoch: wire.NoLeaderEpoch}
	if !supportedTimestamp(p.Timestamp, msg.Version) {
		return none, kerr.UnsupportedVersion
	}
	part, err := findReplica(img, h.parts, tp.Topic, tp.Partition)
	if err != nil {
		return none, err
	}
	epoch, isolation := wire.LeaderEpoch(p.CurrentLeaderEpoch), replica.ReadUncommitted
	switch {
	case msg.ReplicaID != consumerReplica:
		isolation = replica.ReadAll
	case msg.IsolationLevel == 1:
		isolation = replica.ReadCommitted
	}
	switch p.Timestamp {
	case latestTimestamp:
		return part.Latest(epoch, isolation)
	case earliestTimestamp, earliestLocalTimestamp:
		return part.Earliest(epoch)
	case maxTimestamp:
		return part.AtMaxTimestamp(epoch, isolation)
	case latestTieredTimestamp, pendingUploadTimestamp:
		_, err := part.Earliest(epoch) // for its checks
		return none, err
	}
	return part.AtTimestamp(epoch, isolation, p.Timestamp)
}
