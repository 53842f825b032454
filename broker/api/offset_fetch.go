package api

import (
	"context"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/raftctl/image"
)

// offsetFetch answers OffsetFetch (key 9), versions 1-10. v2 null topics are all, and an error for the whole (before, it
// is repeated per partition); v5 leader epochs; v7 RequireStable (KIP-447); v8 many groups (KIP-709); v9 member id and
// epoch, which mean nothing for classic groups; v10 topic ids instead of names. A group or partition without an offset
// is no error. Errors: 14, 16 for a group; 88, 100 (v10) per partition.
type offsetFetch struct {
	image  func() *image.Image // what a whole request is answered from
	groups *groupcoord.Service
}

const (
	fetchGroupsFrom    = 8
	fetchTopicIDsFrom  = 10
	fetchTopErrorsFrom = 2
)

func (h offsetFetch) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.OffsetFetchRequest)
	groups := msg.Groups
	if msg.Version < fetchGroupsFrom {
		groups = []kmsg.OffsetFetchRequestGroup{asFetchGroup(msg)}
	}
	out := make([]kmsg.OffsetFetchResponseGroup, len(groups))
	var waiting atomic.Int64
	waiting.Store(int64(len(groups)) + 1)
	finish := func() {
		if waiting.Add(-1) == 0 {
			w.Reply(fetchResponse(msg.Version, groups, out))
		}
	}
	for i := range groups {
		h.fetch(msg.Version, msg.RequireStable, &groups[i], func(g kmsg.OffsetFetchResponseGroup) {
			out[i] = g
			finish()
		})
	}
	finish()
}

// asFetchGroup is the one group of an old request in the form of a new one.
func asFetchGroup(msg *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = msg.Group
	if msg.Topics == nil {
		return g
	}
	g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(msg.Topics))
	for i, t := range msg.Topics {
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return g
}

// fetch asks the coordinator for one group. Topics whose id is not known are answered here.
func (h offsetFetch) fetch(version int16, stable bool, g *kmsg.OffsetFetchRequestGroup, done func(kmsg.OffsetFetchResponseGroup)) {
	r := groupcoord.FetchRequest{Group: g.Group, All: g.Topics == nil, Stable: stable}
	img := h.image()
	byID := version >= fetchTopicIDsFrom
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	for _, t := range g.Topics {
		topic, ok := resolveTopic(img, byID, t.Topic, t.TopicID)
		switch {
		case ok:
			r.Topics = append(r.Topics, offsets.FetchTopic{Name: topic.Name, ID: topic.ID, Partitions: t.Partitions})
		case byID:
			unknown = append(unknown, fetchTopicError(&t, kerr.UnknownTopicID.Code))
		default:
			r.Topics = append(r.Topics, offsets.FetchTopic{Name: t.Topic, Partitions: t.Partitions})
		}
	}
	h.groups.FetchOffsets(r, func(resp kmsg.OffsetFetchResponseGroup) {
		if resp.ErrorCode == 0 {
			resp.Topics = append(resp.Topics, unknown...)
		}
		if byID && r.All {
			resp.Topics = withIDs(resp.Topics)
		}
		done(resp)
	})
}

// withIDs leaves out topics that exist no longer: a client that speaks ids could not name them.
func withIDs(topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	kept := topics[:0]
	for _, t := range topics {
		if t.TopicID != [16]byte{} {
			kept = append(kept, t)
		}
	}
	return kept
}

func fetchTopicError(t *kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic, rt.TopicID = t.Topic, t.TopicID
	for _, p := range t.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, new(string), code
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

// fetchResponse shapes the answers for the version; asked is what they answer.
func fetchResponse(version int16, asked []kmsg.OffsetFetchRequestGroup, groups []kmsg.OffsetFetchResponseGroup) *kmsg.OffsetFetchResponse {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = version
	if version >= fetchGroupsFrom {
		resp.Groups = groups
		return resp
	}
	g := groups[0]
	if g.ErrorCode != 0 && version < fetchTopErrorsFrom {
		for i := range asked[0].Topics {
			g.Topics = append(g.Topics, fetchTopicError(&asked[0].Topics[i], g.ErrorCode))
		}
	} else {
		resp.ErrorCode = g.ErrorCode
	}
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = p.Partition, p.Offset, p.LeaderEpoch
			rp.Metadata, rp.ErrorCode = p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
