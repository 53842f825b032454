package offsets

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// CommitRequest is an OffsetCommit for topics that exist.
type CommitRequest struct {
	Version    int16
	Group      string
	MemberID   string
	InstanceID *string
	Generation int32 // -1 from outside any membership
	Retention  int64 // milliseconds, -1 for the broker's (v2-4)
	Topics     []CommitTopic
	// Txn makes the offsets part of this producer's transaction: they become visible with its commit marker.
	Txn *coord.ProducerRef
}

// CommitTopic has name and id filled in whatever the client sent.
type CommitTopic struct {
	Name       string
	ID         wire.UUID
	Partitions []kmsg.OffsetCommitRequestTopicPartition
}

// Commit stores offsets; the reply is a response whose topics are those of the request in order.
func (s *State) Commit(tok coord.Token, now time.Time, r CommitRequest) coord.Decision {
	validate := s.groups.ValidateCommit
	if r.Txn != nil {
		validate = s.groups.ValidateTxnCommit
	}
	if err := validate(r.Group, r.MemberID, r.InstanceID, r.Generation, r.Version); err != nil {
		return reply(tok, CommitError(r.Topics, err.Code))
	}
	commit := now.UnixMilli()
	expire := wire.NoTimestamp
	if r.Retention != -1 {
		expire = commit + r.Retention
	}
	d := coord.Decision{Batch: coord.Batch{Timestamp: now, Producer: r.Txn}}
	resp := kmsg.NewPtrOffsetCommitResponse()
	for _, t := range r.Topics {
		rt := commitTopic(t)
		for i := range t.Partitions {
			p := &t.Partitions[i]
			e := Entry{
				Offset: wire.Offset(p.Offset), LeaderEpoch: wire.LeaderEpoch(p.LeaderEpoch),
				Commit: commit, Expire: expire, TopicID: t.ID,
			}
			if p.Metadata != nil {
				e.Metadata = *p.Metadata
			}
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			if utf16Len(e.Metadata) > s.cfg.MaxMetadata {
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			} else {
				d.Records = append(d.Records, record(Key{r.Group, t.Name, wire.PartitionID(p.Partition)}, e))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	d.Replies = []coord.Reply{{Token: tok, Body: resp}}
	if t, ok := s.groups.Touch(r.Group, r.MemberID, now); ok {
		d.Soft = func(error) ([]coord.Reply, []coord.Effect) { return nil, []coord.Effect{t} }
	}
	return d
}

// CommitError is a response in which every partition carries code.
func CommitError(topics []CommitTopic, code int16) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for _, t := range topics {
		rt := commitTopic(t)
		for i := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = t.Partitions[i].Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func commitTopic(t CommitTopic) kmsg.OffsetCommitResponseTopic {
	rt := kmsg.NewOffsetCommitResponseTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, 0, len(t.Partitions))
	return rt
}

// utf16Len is the length as Java counts it.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xFFFF {
			n++
		}
	}
	return n
}

func reply(tok coord.Token, body any) coord.Decision {
	return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: body}}}
}
