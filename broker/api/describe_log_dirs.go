package api

import (
	"context"
	"path"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs, key 35, versions 1-5: every log directory of this broker with the partitions that were asked for.
//
//   - Topics null means all; partitions that are not here are absent. v2: flexible. v3: top-level error. v4: bytes of the
//     file system. v5 (KIP-1066): cordoned. A replica that moves is in two directories (KIP-113).
//
// Errors, per directory: 56 when it is offline; -1 when its file system does not answer.
type describeLogDirs struct {
	images imageSource
	dirs   dataDirs
	nodeID wire.BrokerID
}

// dataDirs describes the log directories.
type dataDirs interface {
	LogDirs() []replica.DirInfo
}

func (h *describeLogDirs) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeLogDirsRequest)
	resp := kmsg.NewPtrDescribeLogDirsResponse()
	resp.Version = req.Version
	wanted := wantedPartitions(msg)
	for _, d := range h.dirs.LogDirs() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes, out.ErrorCode = path.Clean(d.Path), d.Total, d.Free, errorCode(d.Err)
		out.IsCordoned = h.cordoned(d.ID)
		for _, p := range d.Partitions {
			if wanted != nil && !wanted[p.TP] {
				continue
			}
			addLogDirPartition(&out, p)
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	w.Reply(resp)
}

// wantedPartitions is nil when all are wanted.
func wantedPartitions(msg *kmsg.DescribeLogDirsRequest) map[wire.TopicPartition]bool {
	if msg.Topics == nil {
		return nil
	}
	wanted := map[wire.TopicPartition]bool{}
	for _, t := range msg.Topics {
		for _, p := range t.Partitions {
			wanted[wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p)}] = true
		}
	}
	return wanted
}

// addLogDirPartition adds p, whose topic comes right after the topic that was added last, or is it.
func addLogDirPartition(out *kmsg.DescribeLogDirsResponseDir, p replica.PartitionInfo) {
	a := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
	a.Partition, a.Size, a.OffsetLag, a.IsFuture = int32(p.TP.Partition), p.Size, p.OffsetLag, p.Future
	if n := len(out.Topics); n == 0 || out.Topics[n-1].Topic != p.TP.Topic {
		t := kmsg.NewDescribeLogDirsResponseDirTopic()
		t.Topic = p.TP.Topic
		out.Topics = append(out.Topics, t)
	}
	t := &out.Topics[len(out.Topics)-1]
	t.Partitions = append(t.Partitions, a)
}

func (h *describeLogDirs) cordoned(id wire.UUID) bool {
	b, ok := h.images.Image().Broker(h.nodeID)
	if !ok {
		return false
	}
	for _, c := range b.CordonedLogDirs {
		if c == id {
			return true
		}
	}
	return false
}
