package loop

import (
	"fmt"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group is what the members of one group share with the checker.
const groupName = "g"

// member is a classic group member: it joins, and while it owns the partition it commits growing offsets.
type member struct {
	actor
	c          *cluster
	id         string
	generation int32
	synced     int32 // the last generation whose assignment it was given, by the coordinator of epoch syncedBy or an earlier one
	syncedBy   wire.LeaderEpoch
	leader     bool
	owns       bool
	behind     bool // it was told an offset by a coordinator that had been replaced, and a later one was committed
	joined     bool
	busy       bool
	value      int64 // the last that it has committed or found
	read       bool  // it has fetched the committed offset in this generation
	draws      int
}

func (c *cluster) addMember() {
	m := &member{actor: actor{id: firstClient + len(c.clients), up: true}, c: c, generation: -1}
	c.clients = append(c.clients, &m.actor)
	c.members = append(c.members, m)
	c.after(c.between(200*time.Millisecond, time.Second), m.tick)
}

// answer is what the coordinator says.
type said struct {
	body any
	err  error
}

// ask runs an operation of the coordinator, and tells done.
func (m *member) ask(timeout time.Duration, op func(s *shard, tok coord.Token, now time.Time) coord.Decision, done func(body any), unknown func()) {
	c := m.c
	leader, _ := c.anyNode().leaderOf(offsetsPartition)
	if leader == wire.NoBroker {
		m.busy = false
		return
	}
	n := c.node(int(leader))
	m.busy = true
	c.net.dial(&m.actor, &n.actor).call(timeout, func(reply func(any)) {
		if !n.serving || n.parts[offsetsPartition] == nil || n.parts[offsetsPartition].shard == nil {
			reply(said{err: kerr.NotCoordinator})
			return
		}
		s := n.parts[offsetsPartition].shard
		s.op(func(tok coord.Token, now time.Time) coord.Decision { return op(s, tok, now) },
			func(body any, err error) { reply(said{body, err}) })
	}, func(r any) {
		m.busy = false
		if a, ok := r.(said); ok && a.err == nil {
			done(a.body)
			return
		}
		unknown()
	})
}

func nothing() {}

func (m *member) tick() {
	c := m.c
	c.after(c.between(80*time.Millisecond, 250*time.Millisecond), m.tick)
	if m.busy {
		return
	}
	switch {
	case !m.joined:
		m.join()
	case !m.owns || c.chance(300):
		m.heartbeat()
	case !m.read:
		m.fetch()
	default:
		m.commit()
	}
}

func (m *member) lost() { m.joined, m.owns, m.read = false, false, false }

func (m *member) join() {
	m.draws++
	id := fmt.Sprintf("m%d-%d", m.actor.id, m.draws)
	r := classic.JoinRequest{Version: 3, Group: groupName, MemberID: m.id, NewMemberID: id, ClientID: id, ClientHost: "/x",
		Session: 2 * time.Second, Rebalance: 3 * time.Second, Type: "other", Protocols: []classic.Protocol{{Name: "p"}}}
	m.ask(5*time.Second, func(s *shard, tok coord.Token, now time.Time) coord.Decision { return s.groups.Join(tok, now, r) }, func(body any) {
		resp := body.(*kmsg.JoinGroupResponse)
		if resp.ErrorCode != 0 {
			m.id = ""
			return
		}
		m.id = resp.MemberID
		m.generation, m.leader = resp.Generation, resp.LeaderID == resp.MemberID
		m.sync(resp)
	}, nothing)
}

func (m *member) sync(j *kmsg.JoinGroupResponse) {
	proto := "p"
	r := classic.SyncRequest{Group: groupName, MemberID: m.id, Generation: m.generation, Protocol: &proto, Assignments: map[string][]byte{}}
	if m.leader {
		for _, o := range j.Members { // one owner: the one whose turn it is
			r.Assignments[o.MemberID] = nil
		}
		r.Assignments[j.Members[m.c.rng.IntN(len(j.Members))].MemberID] = []byte{1}
	}
	epoch := wire.NoLeaderEpoch
	m.ask(5*time.Second, func(s *shard, tok coord.Token, now time.Time) coord.Decision {
		epoch = s.epoch
		return s.groups.Sync(tok, now, r)
	}, func(body any) {
		resp := body.(*kmsg.SyncGroupResponse)
		if resp.ErrorCode != 0 {
			m.lost()
			return
		}
		m.joined, m.owns, m.read = true, len(resp.MemberAssignment) > 0, false
		m.c.check.synced(m, epoch)
	}, nothing)
}

func (m *member) heartbeat() {
	r := classic.HeartbeatRequest{Group: groupName, MemberID: m.id, Generation: m.generation}
	m.ask(rpcTimeout, func(s *shard, tok coord.Token, now time.Time) coord.Decision { return s.groups.Heartbeat(tok, now, r) }, func(body any) {
		switch code := body.(int16); code {
		case 0:
		case kerr.UnknownMemberID.Code:
			m.id = ""
			m.lost()
		default:
			m.lost()
		}
	}, nothing)
}

func (m *member) fetch() {
	asked, epoch := m.c.check.offset, wire.NoLeaderEpoch
	m.ask(rpcTimeout, func(s *shard, tok coord.Token, _ time.Time) coord.Decision {
		epoch = s.epoch
		resp := s.offsets.Fetch(groupName, []offsets.FetchTopic{{Name: dataTopic, Partitions: []int32{0}}}, false)
		return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: resp}}}
	}, func(body any) {
		resp := body.(kmsg.OffsetFetchResponseGroup)
		m.value = resp.Topics[0].Partitions[0].Offset
		m.c.check.fetchedOffset(m, epoch, asked, m.value)
		m.read = true
	}, nothing)
}

func (m *member) commit() {
	value := m.value + 1
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = value
	r := offsets.CommitRequest{Version: 8, Group: groupName, MemberID: m.id, Generation: m.generation, Retention: -1,
		Topics: []offsets.CommitTopic{{Name: dataTopic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}}
	generation := m.generation
	m.value = value // also if nobody knows what becomes of it: no value is committed twice
	m.ask(rpcTimeout, func(s *shard, tok coord.Token, now time.Time) coord.Decision { return s.offsets.Commit(tok, now, r) }, func(body any) {
		code := body.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
		switch code {
		case 0:
			m.c.check.committed(m, generation, value)
		case kerr.RebalanceInProgress.Code:
			m.lost()
		default:
			m.id = ""
			m.lost()
		}
	}, func() {
		m.id = "" // the request may arrive yet: whoever commits next does it in another generation
		m.lost()
	})
}
