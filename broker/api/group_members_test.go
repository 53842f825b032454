package api

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// later asks without waiting for the answer; the result waits and notes it. It returns once the group is in the state that the
// request brings about; "" where what is asked next may overtake it.
func (d *dialog) later(name string, req kmsg.Request, v int16, group, state string) func() kmsg.Response {
	d.t.Helper()
	req.SetVersion(v)
	type answer struct {
		resp kmsg.Response
		err  error
	}
	c := make(chan answer, 1)
	go func() {
		resp, err := d.to.ask(req)
		c <- answer{resp, err}
	}()
	if _, ours := d.to.(*groupNode); ours {
		synctest.Wait()
	} else if state != "" {
		d.awaitState(group, state)
	}
	return func() kmsg.Response {
		d.t.Helper()
		a := <-c
		if a.err != nil {
			d.t.Fatalf("%s: %v", name, a.err)
		}
		d.note(name, v, a.resp)
		return a.resp
	}
}

// awaitState waits until a group of a real Kafka is in a state.
func (d *dialog) awaitState(group, state string) {
	d.t.Helper()
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = 6, []string{group}
	for deadline := time.Now().Add(20 * time.Second); ; {
		resp, err := d.to.ask(r)
		if err != nil {
			d.t.Fatal(err)
		}
		got := resp.(*kmsg.DescribeGroupsResponse).Groups[0].State
		if got == state {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("%s is %s, want %s", group, got, state)
		}
	}
}

// say notes a fact about an answer.
func (d *dialog) say(format string, args ...any) { fmt.Fprintf(&d.out, format+"\n", args...) }

// member of the rebalances below: what it was told last.
type member struct {
	name       string
	id         string
	generation int32
	leads      bool
}

func (m *member) told(d *dialog, r kmsg.Response) {
	j := r.(*kmsg.JoinGroupResponse)
	m.id, m.generation, m.leads = j.MemberID, j.Generation, j.LeaderID == j.MemberID
	var others []string
	for _, o := range j.Members {
		if o.MemberID != j.MemberID {
			others = append(others, "another")
		}
	}
	d.say("%s leads=%v sees %d members, %d of them others", m.name, m.leads, len(j.Members), len(others))
}

// rebalances takes two dynamic members and a static one through joins, syncs, commits, a leave and an end of session.
func (d *dialog) rebalances() {
	g := d.prefix + "-pair"
	a, b := &member{name: "a"}, &member{name: "b"}
	join := func(m *member, v int16, protocols ...string) *kmsg.JoinGroupRequest {
		return d.joinRequest(v, g, m.id, nil, 30_000, "consumer", protocols...)
	}
	syncRequest := func(m *member, assign ...*member) *kmsg.SyncGroupRequest {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.MemberID, r.Generation = g, m.id, m.generation
		r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
		for _, o := range assign {
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: o.id, MemberAssignment: []byte(o.name)})
		}
		return r
	}
	beat := func(m *member) { d.heartbeat(m.name, g, m.id, nil, m.generation, 4) }
	commit := func(m *member) {
		d.commit(m.name, commitArgs{group: g, member: m.id, generation: m.generation}, d.topic, 0, nil, 8, 9)
	}
	a.id = d.do("a asks for an id", join(a, 9, "range", "roundrobin"), 9).(*kmsg.JoinGroupResponse).MemberID
	a.told(d, d.do("a joins alone", join(a, 9, "range", "roundrobin"), 9))
	d.do("a syncs", syncRequest(a, a), 5)
	b.id = d.do("b asks for an id", join(b, 9, "roundrobin", "range"), 9).(*kmsg.JoinGroupResponse).MemberID
	beat(a)
	bJoins := d.later("b joins", join(b, 9, "roundrobin", "range"), 9, g, "PreparingRebalance")
	beat(a)
	commit(a)
	d.do("a syncs during the rebalance", syncRequest(a, a), 5)
	d.describe("preparing", g)
	a.told(d, d.do("a joins again", join(a, 9, "range", "roundrobin"), 9))
	b.told(d, bJoins())
	commit(a)
	d.describe("completing", g)
	bSyncs := d.later("b syncs", syncRequest(b), 5, g, "")
	d.do("a syncs for both", syncRequest(a, a, b), 5)
	bSyncs()
	d.describe("stable", g)
	commit(b)
	b.told(d, d.do("b joins with the same", join(b, 9, "roundrobin", "range"), 9))
	beat(a)
	old := *a
	aJoins := d.later("a, the leader, joins", join(a, 9, "range", "roundrobin"), 9, g, "PreparingRebalance")
	beat(b)
	d.do("b joins with other metadata", join(b, 9, "range"), 9)
	a.told(d, aJoins())
	commit(&old)
	beat(&old)
	d.do("a syncs, old generation", syncRequest(&old, a), 5)
	b.generation = a.generation
	d.do("a syncs for itself alone", syncRequest(a, a), 5)
	d.do("b syncs after it", syncRequest(b), 5)
	d.leave("a", g, a.id, nil, 5)
	beat(b)
	beat(a)
	b.told(d, d.do("b joins after the leave", join(b, 9, "range"), 9))
	d.leave("b", g, b.id, nil, 1)
	d.describe("left", g)
}

func (d *dialog) describe(name, group string) {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = []string{group}
	r.Version = 6
	resp, err := d.to.ask(r)
	if err != nil {
		d.t.Fatal(err)
	}
	got := resp.(*kmsg.DescribeGroupsResponse).Groups[0]
	var assigned []string
	for _, m := range got.Members {
		assigned = append(assigned, fmt.Sprintf("metadata=%v assignment=%q", len(m.ProtocolMetadata) > 0, m.MemberAssignment))
	}
	if len(assigned) > 1 && assigned[0] > assigned[1] {
		assigned[0], assigned[1] = assigned[1], assigned[0]
	}
	d.say("describe %s: %s type=%q protocol=%q %s", name, got.State, got.ProtocolType, got.Protocol, strings.Join(assigned, ", "))
}
