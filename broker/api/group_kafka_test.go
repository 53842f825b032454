package api

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/wire"
)

const groupGolden = "testdata/groups-kafka-4.4.txt"

// asker answers requests: a node of ours in memory, or a running Kafka.
type asker interface {
	ask(req kmsg.Request) (kmsg.Response, error)
}

// TestGroupAnswersAreKafkas asks the group handlers some 300 requests, every API at every version and every error that
// can be provoked, and compares each answer with what Kafka 4.4.0 answered to the same. To ask a Kafka again:
//
//	KAJA_TEST_KAFKA=host:port go test ./broker/api -run TestGroupAnswersAreKafkas
func TestGroupAnswersAreKafkas(t *testing.T) {
	if addr := os.Getenv("KAJA_TEST_KAFKA"); addr != "" {
		k := kafka{addr}
		prefix := fmt.Sprintf("group-%d", time.Now().Unix())
		d := &dialog{t: t, to: k, prefix: prefix, topic: prefix + "-t"}
		d.id = createOnKafka(t, k, d.topic)
		d.run()
		if err := os.WriteFile(groupGolden, []byte(d.out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	golden, err := os.ReadFile(groupGolden)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		n := newGroupNode(t)
		defer n.service.Close()
		d := &dialog{t: t, to: n, prefix: "group-1", topic: "group-1-t", id: wire.UUID{7, 7}}
		n.addTopic(d.topic, d.id, 2)
		d.run()
		got, want := strings.Split(d.out.String(), "\n"), strings.Split(string(golden), "\n")
		for i := range max(len(got), len(want)) {
			var g, w string
			if i < len(got) {
				g = got[i]
			}
			if i < len(want) {
				w = want[i]
			}
			if g != w {
				t.Errorf("line %d\n kaja %s\nkafka %s", i+1, g, w)
			}
		}
	})
}

func createOnKafka(t *testing.T, k kafka, topic string) wire.UUID {
	t.Helper()
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 7
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, 2, 1
	create.Topics = append(create.Topics, ct)
	resp, err := k.ask(create)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(*kmsg.CreateTopicsResponse).Topics[0].TopicID
}

// dialog is one run of the questions; out has a line per answer.
type dialog struct {
	t      testing.TB
	to     asker
	prefix string
	topic  string
	id     wire.UUID
	out    strings.Builder
}

var (
	noise   = regexp.MustCompile(`"(UnknownTags|ThrottleMillis)":(\{\}|\d+),?`)
	memberN = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	idBytes = regexp.MustCompile(`\[(\d+,){15}\d+\]`)
	version = regexp.MustCompile(`"Version":\d+,`)
	subscr  = regexp.MustCompile(`"ProtocolMetadata":"[^"]+"`)
)

// do asks and notes the answer.
func (d *dialog) do(name string, req kmsg.Request, v int16) kmsg.Response {
	d.t.Helper()
	req.SetVersion(v)
	resp, err := d.to.ask(req)
	if err != nil {
		d.t.Fatalf("%s v%d: %v", name, v, err)
	}
	d.note(name, v, resp)
	return resp
}

// note writes a line about an answer, with everything that differs between runs made equal.
func (d *dialog) note(name string, v int16, resp kmsg.Response) {
	d.t.Helper()
	switch r := resp.(type) {
	case *kmsg.ListGroupsResponse:
		r.Groups = slices.DeleteFunc(r.Groups, func(g kmsg.ListGroupsResponseGroup) bool {
			return !strings.HasPrefix(g.Group, d.prefix+"-")
		})
		slices.SortFunc(r.Groups, func(a, b kmsg.ListGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	case *kmsg.DeleteGroupsResponse:
		slices.SortFunc(r.Groups, func(a, b kmsg.DeleteGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	case *kmsg.FindCoordinatorResponse:
		if r.Port == 19092 {
			r.Host = "HOST"
		}
	}
	j, err := json.Marshal(resp)
	if err != nil {
		d.t.Fatal(err)
	}
	s := string(j)
	if strings.Contains(s, `"Topics":[],`) || strings.Contains(s, `"Members":[]`) || strings.Contains(s, `"Groups":[]`) {
		s = strings.NewReplacer(`"Topics":[]`, `"Topics":null`, `"Members":[]`, `"Members":null`, `"Groups":[]`, `"Groups":null`).Replace(s)
	}
	s = noise.ReplaceAllString(s, "")
	s = version.ReplaceAllString(s, "")
	s = idBytes.ReplaceAllStringFunc(s, func(b string) string {
		if b == "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]" {
			return "0"
		}
		return "ID"
	})
	s = memberN.ReplaceAllString(s, "UUID")
	s = subscr.ReplaceAllString(s, `"ProtocolMetadata":"SUBSCRIPTION"`)
	s = strings.ReplaceAll(s, d.prefix, "P")
	s = strings.ReplaceAll(s, `,}`, `}`)
	fmt.Fprintf(&d.out, "%s v%d %s\n", name, v, s)
}

func (d *dialog) run() {
	d.find()
	d.fetchNothing()
	d.simpleGroup()
	d.withoutMembership()
	d.refusedJoins()
	d.describeAll("needs an id", "-needsid", 5)
	d.describeAll("failed join", "-noprotocols0", 5)
	d.describeAll("unknown", "-unknown", 0, 1, 2, 3, 4, 5, 6)
	d.describeAll("simple", "-simple", 0, 1, 2, 3, 4, 5, 6)
	d.staticGroup()
	d.list()
	d.offsetDeletes()
	d.deletes()
	d.rebalances()
}

func (d *dialog) find() {
	// The first use creates the topic; Kafka answers 15 until that is done, kaja waits.
	for range 100 {
		r := kmsg.NewPtrFindCoordinatorRequest()
		r.Version, r.CoordinatorKey = 3, d.prefix
		resp, err := d.to.ask(r)
		if err != nil {
			d.t.Fatal(err)
		}
		if resp.(*kmsg.FindCoordinatorResponse).ErrorCode == 0 {
			break
		}
		if _, ours := d.to.(*groupNode); ours {
			d.t.Fatalf("first FindCoordinator: %+v", resp)
		}
		<-time.After(100 * time.Millisecond)
	}
	if _, ours := d.to.(*groupNode); ours {
		synctest.Wait() // the other partitions load, too
	}
	find := func(name string, kind int8, versions []int16, keys ...string) {
		for _, v := range versions {
			r := kmsg.NewPtrFindCoordinatorRequest()
			r.CoordinatorKey, r.CoordinatorType, r.CoordinatorKeys = keys[0], kind, keys
			d.do("find "+name, r, v)
		}
	}
	all := []int16{0, 1, 2, 3, 4, 5, 6}
	find("group", 0, all, d.prefix)
	find("empty", 0, all, "")
	find("two", 0, all, d.prefix, d.prefix+"x")
	find("no such type", 7, all, d.prefix)
	find("malformed share key", 2, all, d.prefix)
	find("transaction", 1, []int16{0}, d.prefix) // the type exists from v1 on
}

func (d *dialog) fetch(name, group string, stable bool, topics map[string][]int32, versions ...int16) {
	for _, v := range versions {
		if v < 2 && topics == nil {
			continue
		}
		r := kmsg.NewPtrOffsetFetchRequest()
		r.RequireStable, r.Group = stable && v >= 7, group
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		if topics != nil {
			r.Topics, g.Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
		}
		for name, ps := range topics {
			r.Topics = append(r.Topics, kmsg.OffsetFetchRequestTopic{Topic: name, Partitions: ps})
			g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: name, TopicID: d.topicID(name), Partitions: ps})
		}
		r.Groups = append(r.Groups, g)
		d.do("fetch "+name, r, v)
	}
}

func (d *dialog) topicID(name string) wire.UUID {
	if name == d.topic {
		return d.id
	}
	return wire.UUID{9, 9}
}

var fetchVersions = []int16{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}

func (d *dialog) fetchNothing() {
	unknown := d.prefix + "-unknown"
	d.fetch("unknown group", unknown, false, map[string][]int32{d.topic: {0, 7}}, fetchVersions...)
	d.fetch("unknown group, all", unknown, false, nil, fetchVersions...)
	d.fetch("unknown topic", unknown, false, map[string][]int32{"nope": {0}}, fetchVersions...)
	d.fetch("no topics", unknown, false, map[string][]int32{}, 7, 8, 9, 10)
}

// commitArgs are what a commit says of its sender.
type commitArgs struct {
	group, member string
	instance      *string
	generation    int32
}

func (d *dialog) commit(name string, a commitArgs, topic string, partition int32, metadata *string, versions ...int16) {
	for _, v := range versions {
		r := kmsg.NewPtrOffsetCommitRequest()
		r.Group, r.MemberID, r.Generation = a.group, a.member, a.generation
		if v >= 7 {
			r.InstanceID = a.instance
		}
		if topic != "" {
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, 42, 3, metadata
			r.Topics = []kmsg.OffsetCommitRequestTopic{{
				Topic: topic, TopicID: d.topicID(topic), Partitions: []kmsg.OffsetCommitRequestTopicPartition{p},
			}}
		}
		d.do("commit "+name, r, v)
	}
}

func (d *dialog) simpleGroup() {
	simple := commitArgs{group: d.prefix + "-simple", generation: -1}
	all := []int16{2, 3, 4, 5, 6, 7, 8, 9, 10}
	d.commit("simple", simple, d.topic, 0, kmsg.StringPtr("m"), all...)
	d.commit("null metadata", simple, d.topic, 1, nil, 8, 10)
	d.commit("unknown partition", simple, d.topic, 5, nil, 8, 10)
	d.commit("unknown topic", simple, "nope", 0, nil, 8, 10)
	d.commit("no topics", commitArgs{group: d.prefix + "-unknown", generation: 5}, "", 0, nil, 8, 10)
	d.commit("too much metadata", simple, d.topic, 0, kmsg.StringPtr(strings.Repeat("x", 4097)), 8, 10)
	d.commit("as much metadata as may be", simple, d.topic, 1, kmsg.StringPtr(strings.Repeat("x", 4096)), 8)
	d.commit("empty again", simple, d.topic, 1, kmsg.StringPtr(""), 8)
	unknown := commitArgs{group: d.prefix + "-unknown", member: "m", generation: 3}
	d.commit("generation in an unknown group", unknown, d.topic, 0, nil, all...)
	d.commit("member without generation in an unknown group", commitArgs{group: d.prefix + "-member", member: "m", generation: -1},
		d.topic, 0, nil, 8, 9)
	d.commit("generation in an empty group", commitArgs{group: simple.group, member: "m"}, d.topic, 0, nil, 8, 9)
	d.fetch("simple", simple.group, false, map[string][]int32{d.topic: {0, 1}}, fetchVersions...)
	d.fetch("simple, stable", simple.group, true, map[string][]int32{d.topic: {0}}, 7, 8, 9, 10)
	d.fetch("simple, all", simple.group, false, nil, fetchVersions...)
}

func (d *dialog) heartbeat(name, group, member string, instance *string, generation int32, versions ...int16) {
	for _, v := range versions {
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.Generation = group, member, generation
		if v >= 3 {
			r.InstanceID = instance
		}
		d.do("heartbeat "+name, r, v)
	}
}

func (d *dialog) leave(name, group, member string, instance *string, versions ...int16) {
	for _, v := range versions {
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Group, r.MemberID = group, member
		r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: member, InstanceID: instance}}
		d.do("leave "+name, r, v)
	}
}

// syncArgs are what a SyncGroup says.
type syncArgs struct {
	group, member  string
	instance       *string
	generation     int32
	kind, protocol string
}

func (d *dialog) sync(name string, a syncArgs, versions ...int16) {
	for _, v := range versions {
		r := kmsg.NewPtrSyncGroupRequest()
		r.Group, r.MemberID, r.Generation = a.group, a.member, a.generation
		if v >= 3 {
			r.InstanceID = a.instance
		}
		if v >= 5 && a.kind != "" {
			r.ProtocolType, r.Protocol = &a.kind, &a.protocol
		}
		d.do("sync "+name, r, v)
	}
}

func (d *dialog) withoutMembership() {
	hb := []int16{0, 1, 2, 3, 4}
	unknown, simple := d.prefix+"-unknown", d.prefix+"-simple"
	d.heartbeat("without group", "", "m", nil, 0, hb...)
	d.heartbeat("unknown group", unknown, "m", nil, 0, hb...)
	d.heartbeat("simple group", simple, "m", nil, 0, hb...)
	lv := []int16{0, 1, 2, 3, 4, 5}
	d.leave("without group", "", "m", nil, lv...)
	d.leave("unknown group", unknown, "m", nil, lv...)
	d.leave("unknown member", simple, "m", nil, lv...)
	d.leave("unknown instance", simple, "", kmsg.StringPtr("i"), 3, 4, 5)
	none := kmsg.NewPtrLeaveGroupRequest()
	none.Group = simple
	d.do("leave nobody", none, 3)
	sv := []int16{0, 1, 2, 3, 4, 5}
	args := syncArgs{member: "m", kind: "consumer", protocol: "range"}
	d.sync("without group", args, sv...)
	args.group = unknown
	d.sync("unknown group", args, sv...)
	args.group = simple
	d.sync("simple group", args, sv...)
	args.kind = ""
	d.sync("without protocol", args, 5)
}

func (d *dialog) joinRequest(v int16, group, member string, instance *string, sessionMs int32, kind string, protocols ...string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = v, group, member, sessionMs, 10_000
	r.ProtocolType = kind
	if v >= 5 {
		r.InstanceID = instance
	}
	for _, name := range protocols {
		m := kmsg.NewConsumerMemberMetadata()
		m.Topics = []string{d.topic}
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: m.AppendTo(nil)})
	}
	return r
}

func (d *dialog) refusedJoins() {
	for v := int16(0); v <= 9; v++ {
		d.do("join without group", d.joinRequest(v, "", "", nil, 10_000, "consumer", "range"), v)
		d.do("join, session too short", d.joinRequest(v, d.prefix+"-j", "", nil, 10, "consumer", "range"), v)
		d.do("join, session too long", d.joinRequest(v, d.prefix+"-j", "m", nil, 10_000_000, "consumer", "range"), v)
		d.do("join unknown group with id", d.joinRequest(v, d.prefix+"-j", "m", nil, 10_000, "consumer", "range"), v)
		d.do("join without protocols", d.joinRequest(v, d.prefix+"-noprotocols"+fmt.Sprint(v), "", nil, 10_000, "consumer"), v)
		d.do("join without type", d.joinRequest(v, d.prefix+"-notype"+fmt.Sprint(v), "", nil, 10_000, "", "range"), v)
	}
	for v := int16(4); v <= 9; v++ {
		d.do("join needs an id", d.joinRequest(v, d.prefix+"-needsid", "", nil, 10_000, "consumer", "range"), v)
	}
	d.do("join with a pending id and an instance", d.joinRequest(9, d.prefix+"-needsid", "nobody", kmsg.StringPtr("i"), 10_000, "consumer", "range"), 9)
}

func (d *dialog) describeAll(name, suffix string, versions ...int16) {
	for _, v := range versions {
		r := kmsg.NewPtrDescribeGroupsRequest()
		r.Groups, r.IncludeAuthorizedOperations = []string{d.prefix + suffix}, true
		d.do("describe "+name, r, v)
	}
}

func (d *dialog) staticGroup() {
	g, i1 := d.prefix+"-g", kmsg.StringPtr("i1")
	join := func(v int16) *kmsg.JoinGroupRequest {
		return d.joinRequest(v, g, "", i1, 10_000, "consumer", "range", "roundrobin")
	}
	m := d.do("join static", join(9), 9).(*kmsg.JoinGroupResponse).MemberID
	d.describeAll("completing", "-g", 6)
	d.heartbeat("completing", g, m, nil, 1, 0, 4)
	d.heartbeat("wrong generation", g, m, nil, 7, 0, 4)
	d.heartbeat("fenced", g, "other", i1, 1, 3, 4)
	d.heartbeat("unknown instance", g, m, kmsg.StringPtr("ix"), 1, 3, 4)
	member := commitArgs{group: g, member: m, generation: 1}
	d.commit("completing", member, d.topic, 0, nil, 5, 8, 10)
	d.commit("from outside", commitArgs{group: g, generation: -1}, d.topic, 0, nil, 5, 8, 10)
	d.commit("wrong generation", commitArgs{group: g, member: m, generation: 5}, d.topic, 0, nil, 5, 8, 10)
	d.commit("fenced", commitArgs{group: g, member: "other", instance: i1, generation: 1}, d.topic, 0, nil, 8, 10)
	d.do("join again, completing", d.joinRequest(9, g, m, i1, 10_000, "consumer", "range", "roundrobin"), 9)
	args := syncArgs{group: g, member: m, generation: 1, kind: "connect", protocol: "range"}
	d.sync("other type", args, 5)
	args.kind, args.protocol = "consumer", "sticky"
	d.sync("other protocol", args, 5)
	args.protocol, args.generation = "range", 4
	d.sync("wrong generation", args, 0, 5)
	d.sync("fenced", syncArgs{group: g, member: "other", instance: i1, generation: 1, kind: "consumer", protocol: "range"}, 3, 5)
	args.generation = 1
	d.sync("leader without assignments", args, 5)
	d.sync("again", args, 0, 3, 5)
	d.describeAll("stable", "-g", 0, 1, 2, 3, 4, 5, 6)
	d.heartbeat("stable", g, m, i1, 1, 3, 4)
	d.commit("stable", member, d.topic, 0, nil, 5, 8, 9, 10)
	d.do("join other type", d.joinRequest(9, g, "", nil, 10_000, "connect", "range"), 9)
	d.do("join other protocols", d.joinRequest(9, g, "", nil, 10_000, "consumer", "sticky"), 9)
	d.do("join unknown member", d.joinRequest(9, g, "nobody", nil, 10_000, "consumer", "range"), 9)
	d.do("join fenced", d.joinRequest(9, g, "nobody", i1, 10_000, "consumer", "range"), 9)
	d.do("join static again", join(9), 9)
	d.do("join static again", join(8), 8)
	d.do("join static again", join(5), 5)
	d.heartbeat("replaced", g, m, i1, 1, 4)
	d.heartbeat("replaced, without instance", g, m, nil, 1, 4)
}

func (d *dialog) list() {
	list := func(name string, states, types []string, versions ...int16) {
		for _, v := range versions {
			r := kmsg.NewPtrListGroupsRequest()
			if v >= 4 {
				r.StatesFilter = states
			}
			if v >= 5 {
				r.TypesFilter = types
			}
			d.do("list "+name, r, v)
		}
	}
	list("all", nil, nil, 0, 1, 2, 3, 4, 5)
	list("stable", []string{"stable"}, nil, 4, 5)
	list("stable or nonsense", []string{"Stable", "nonsense"}, nil, 4, 5)
	list("consumer", nil, []string{"consumer"}, 5)
	list("classic", nil, []string{"CLASSIC"}, 5)
	list("nonsense type", nil, []string{"nonsense"}, 5)
}

func (d *dialog) offsetDeletes() {
	del := func(name, group, topic string, partition int32) {
		r := kmsg.NewPtrOffsetDeleteRequest()
		r.Group = group
		r.Topics = []kmsg.OffsetDeleteRequestTopic{{
			Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}},
		}}
		d.do("offset delete "+name, r, 0)
	}
	g, simple := d.prefix+"-g", d.prefix+"-simple"
	del("subscribed", g, d.topic, 0)
	del("unknown topic", g, "nope", 0)
	del("unknown partition", g, d.topic, 9)
	del("unknown group", d.prefix+"-unknown", d.topic, 0)
	del("unknown group and topic", d.prefix+"-unknown", "nope", 0)
	del("without group", "", d.topic, 0)
	del("simple", simple, d.topic, 0)
	del("nothing there", simple, d.topic, 0)
	d.fetch("after offset delete", simple, false, nil, 8)
}

func (d *dialog) deletes() {
	del := func(name string, groups ...string) {
		for v := int16(0); v <= 3; v++ {
			r := kmsg.NewPtrDeleteGroupsRequest()
			r.Groups = groups
			d.do("delete "+name, r, v)
		}
	}
	g := d.prefix + "-g"
	del("stable", g)
	del("unknown", d.prefix+"-unknown")
	del("twice the same", d.prefix+"-unknown", d.prefix+"-unknown")
	d.leave("by instance", g, "", kmsg.StringPtr("i1"), 5)
	d.describeAll("after leave", "-g", 5, 6)
	del("empty", g, d.prefix+"-simple")
	d.describeAll("after delete", "-g", 5, 6)
	d.fetch("after delete", d.prefix+"-simple", false, nil, 8)
}
