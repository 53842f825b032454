package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterReplicaLogDirs, key 34, versions 1-2: has replicas of this broker brought into other ones of its log directories
// (KIP-113). The answer does not wait for that: DescribeLogDirs shows how far it is. v2: flexible. A partition that is named
// twice is brought to where it is named last.
//
// Errors, per partition: 57 for a path that is none of log.dirs, 56 when that directory or the partition is offline, 9 when
// there is no replica here (the directory is remembered for it), 3, 17 for a name that is too long for the directory of a
// move. Cordoned directories (39) are not there.
type alterReplicaLogDirs struct{ dirs replicaMover }

// replicaMover brings replicas into other log directories; *replica.Manager is one.
type replicaMover interface {
	MoveReplica(topic string, id wire.PartitionID, path string) error
}

func (h *alterReplicaLogDirs) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AlterReplicaLogDirsRequest)
	resp := msg.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	paths := map[wire.TopicPartition]string{}
	for _, d := range msg.Dirs {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				paths[wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p)}] = d.Dir
			}
		}
	}
	at := map[string]int{} // of a topic in the answer
	for _, d := range msg.Dirs {
		for _, t := range d.Topics {
			for _, p := range t.Partitions {
				tp := wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p)}
				path, asked := paths[tp]
				if !asked {
					continue // answered already
				}
				delete(paths, tp)
				i, ok := at[t.Topic]
				if !ok {
					i = len(resp.Topics)
					at[t.Topic] = i
					rt := kmsg.NewAlterReplicaLogDirsResponseTopic()
					rt.Topic = t.Topic
					resp.Topics = append(resp.Topics, rt)
				}
				rp := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, errorCode(h.dirs.MoveReplica(tp.Topic, tp.Partition, path))
				resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, rp)
			}
		}
	}
	w.Reply(resp)
}
