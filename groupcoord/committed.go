package groupcoord

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// CommitOffsets stores offsets of topics and partitions that exist. The response's topics and partitions are those of
// r in order; its version is r's.
func (s *Service) CommitOffsets(r offsets.CommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	s.post(r.Group, func(m *machine, tok coord.Token, now time.Time) coord.Decision { return m.offsets.Commit(tok, now, r) },
		func(body any, err *kerr.Error) {
			resp, _ := body.(*kmsg.OffsetCommitResponse)
			if err != nil {
				resp = offsets.CommitError(r.Topics, err.Code)
			}
			resp.Version = r.Version
			s.metrics.committed(resp)
			done(resp)
		})
}

// FetchRequest asks for the offsets of one group.
type FetchRequest struct {
	Group  string
	All    bool                 // every offset the group has; Topics is ignored
	Topics []offsets.FetchTopic // with the ids that the topics have now
	Stable bool                 // RequireStable (KIP-447)
}

// FetchOffsets answers with a v8+ group: a group that does not exist has no offsets, which is no error. When the
// coordinator can't tell, which includes one that may have been replaced, the group carries an error and nothing else. What has
// been decided and is about to be known here is waited for first.
func (s *Service) FetchOffsets(r FetchRequest, done func(kmsg.OffsetFetchResponseGroup)) {
	s.fetchOffsets(r, true, done)
}

func (s *Service) fetchOffsets(r FetchRequest, mayWait bool, done func(kmsg.OffsetFetchResponseGroup)) {
	s.post(r.Group, func(m *machine, tok coord.Token, _ time.Time) coord.Decision {
		var g kmsg.OffsetFetchResponseGroup
		if r.All {
			g = m.offsets.FetchAll(r.Group, s.o.Topics.TopicID, r.Stable)
		} else {
			g = m.offsets.Fetch(r.Group, r.Topics, r.Stable)
		}
		return reply(tok, g)
	}, func(body any, err *kerr.Error) {
		if err == nil && s.o.Outdated() {
			if mayWait && s.o.CatchUp(func() { s.fetchOffsets(r, false, done) }) {
				return
			}
			err = kerr.NotCoordinator // its successor may have taken later commits
		}
		if err == nil {
			done(body.(kmsg.OffsetFetchResponseGroup))
			return
		}
		if err == kerr.CoordinatorNotAvailable {
			err = kerr.NotCoordinator // consumers before 3.9 do not retry 15 here
		}
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = r.Group, err.Code
		done(g)
	})
}

// DeleteOffsets removes offsets of partitions that exist (KIP-496).
func (s *Service) DeleteOffsets(group string, topics []kmsg.OffsetDeleteRequestTopic, done func(*kmsg.OffsetDeleteResponse)) {
	fail := func(err *kerr.Error) {
		resp := kmsg.NewPtrOffsetDeleteResponse()
		resp.ErrorCode = err.Code
		done(resp)
	}
	if group == "" {
		fail(kerr.InvalidGroupID)
		return
	}
	s.post(group, func(m *machine, tok coord.Token, now time.Time) coord.Decision {
		return m.offsets.Delete(tok, now, group, topics)
	}, func(body any, err *kerr.Error) {
		if err != nil {
			fail(err)
			return
		}
		done(body.(*kmsg.OffsetDeleteResponse))
	})
}

func reply(tok coord.Token, body any) coord.Decision {
	return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: body}}}
}

var _ Topics = TopicIDs(nil)

// TopicIDs makes a function a Topics.
type TopicIDs func(name string) (wire.UUID, bool)

// TopicID implements Topics.
func (f TopicIDs) TopicID(name string) (wire.UUID, bool) { return f(name) }
