package compattests_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Cases from the field that concern groups.

// fetchOffsets asks OffsetFetch for one topic's partitions, or for all with no topic.
func fetchOffsets(t *testing.T, c *raw.Conn, version int16, group, topic string, partitions ...int32) *kmsg.OffsetFetchResponse {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group = version, group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if topic != "" {
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = topic, partitions
		req.Topics = append(req.Topics, rt)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = topic, partitions
		g.Topics = append(g.Topics, gt)
	}
	g.MemberEpoch = -1
	req.Groups = append(req.Groups, g)
	return do[*kmsg.OffsetFetchResponse](t, c, req)
}

// committed gives a group's committed offset of a partition, -1 if there is none.
func committed(t *testing.T, c *raw.Conn, group, topic string, partition int32) int64 {
	t.Helper()
	resp := fetchOffsets(t, c, 7, group, topic, partition)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("fetch offsets of %s: %+v", group, resp)
	}
	return resp.Topics[0].Partitions[0].Offset
}

// B13: committed offsets stay while a group has members, and expire after the broker's retention when it has none.
func TestFieldB13OffsetRetention(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	b := ownBroker(t, map[string]string{"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"})
	for _, topic := range []string{"b13x", "b13y"} {
		makeTopic(t, b, topic, 2, nil)
		c := dial(t, b)
		for p := range int32(2) {
			mustProduce(t, c, topic, p, raw.NewBatch(raw.Numbered("v", 0, 5)...).Bytes())
		}
	}
	c := dial(t, b)
	member(t, b, "b13-live", "b13x")
	commitMember := func(group string) *kgo.Client { return member(t, b, group, "b13x") }
	left := commitMember("b13-left")
	left.Close()
	leftAt := time.Now()
	commitAlone(t, b, "b13-alone", "b13x", 0, 3)
	aloneAt := time.Now()
	// A group that is subscribed to b13x, and had committed b13y as well: only b13y's offset may go.
	half := member(t, b, "b13-half", "b13x")
	halfAt := time.Now()
	half.CommitOffsetsSync(t.Context(), map[string]map[int32]kgo.EpochOffset{"b13y": {0: {Epoch: -1, Offset: 4}}}, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Errorf("commit b13y: %+v, %v", resp, err)
		}
	})
	if o := committed(t, c, "b13-half", "b13y", 0); o != 4 {
		t.Fatalf("b13-half: offset %d of b13y, want 4", o)
	}
	for _, group := range []string{"b13-live", "b13-left", "b13-alone"} {
		if o := committed(t, c, group, "b13x", 0); o < 0 {
			t.Fatalf("%s: offset %d after the commit", group, o)
		}
	}
	gone := map[string]time.Duration{}
	err := poll.Until(t.Context(), 110*time.Second, "offsets of groups without members expire", func() (bool, error) {
		for group, since := range map[string]time.Time{"b13-left": leftAt, "b13-alone": aloneAt, "b13-half": halfAt} {
			topic := "b13x"
			if group == "b13-half" {
				topic = "b13y"
			}
			if _, done := gone[group]; !done && committed(t, c, group, topic, 0) < 0 {
				gone[group] = time.Since(since)
			}
		}
		return len(gone) == 3, nil
	})
	if err != nil {
		t.Errorf("%v (gone: %v)", err, gone)
	}
	for group, after := range gone {
		if after < 55*time.Second {
			t.Errorf("%s: offset gone after %v, the retention is 1 minute", group, after)
		}
	}
	if long() { // the idle member of the case waits three minutes
		<-time.After(2 * time.Minute)
	}
	for _, group := range []string{"b13-live", "b13-half"} {
		if o := committed(t, c, group, "b13x", 0); o != 5 {
			t.Errorf("%s has a member: offset %d of b13x, want 5", group, o)
		}
	}
}

// b22Join is a join of group b22's kind. A real client subscribes to something; the metadata here is that of an empty list.
func b22Join(version int16, group, id string, session time.Duration) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = version, group, int32(session.Milliseconds()), 300_000
	req.MemberID, req.ProtocolType = id, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	req.Protocols = append(req.Protocols, p)
	return req
}

const (
	b22Real  = 30 * time.Second // session of the real member
	b22Ghost = 6 * time.Second  // and of those that go away
)

// B22: clients that come back without a member id leave no ghosts behind, and the rebalance ends once who lives has joined.
func TestFieldB22GhostMembers(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	b := ownBroker(t, map[string]string{"group.max.size": "60"})
	makeTopic(t, b, "b22", 1, nil)
	c := dial(t, b)
	findCoordinator(t, c, "b22")
	first := do[*kmsg.JoinGroupResponse](t, c, b22Join(9, "b22", "", b22Real))
	wantCode(t, "join v9 without an id", first.ErrorCode, 79)
	if first.MemberID == "" {
		t.Fatal("no member id was given")
	}
	joined := do[*kmsg.JoinGroupResponse](t, c, b22Join(9, "b22", first.MemberID, b22Real))
	wantCode(t, "join with the id", joined.ErrorCode, 0)

	before := residentBytes(t, b)
	// Ids that are never used a second time.
	for range 40 {
		d := dial(t, b)
		resp := do[*kmsg.JoinGroupResponse](t, d, b22Join(9, "b22", "", b22Ghost))
		wantCode(t, "join v9 without an id", resp.ErrorCode, 79, 81)
		_ = d.Close()
	}
	other := func(id string) *kmsg.JoinGroupResponse { // in a group with room
		return do[*kmsg.JoinGroupResponse](t, dial(t, b), b22Join(9, "b22-pending", id, b22Ghost))
	}
	unused, unusedAt := other(""), time.Now()
	wantCode(t, "join v9 without an id", unused.ErrorCode, 79)
	refused := ghosts(t, b, b22Join(3, "b22", "", b22Ghost))
	if refused == 0 {
		t.Error("the group grew past group.max.size=60")
	}
	describe := func() kmsg.DescribeGroupsResponseGroup {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{"b22"}
		return do[*kmsg.DescribeGroupsResponse](t, dial(t, b), req).Groups[0]
	}
	// The limit counts who waits for the rebalance; the one member that does not rejoin comes on top.
	if n := len(describe().Members); n > 61 {
		t.Errorf("%d members, at most 61 allowed", n)
	}
	if grown := residentBytes(t, b) - before; grown > 64<<20 {
		t.Errorf("the broker grew by %d MiB", grown>>20)
	}
	// An id that was given and not used is forgotten after the session time-out.
	if rest := b22Ghost + time.Second - time.Since(unusedAt); rest > 0 {
		<-time.After(rest)
	}
	wantCode(t, "join with an id whose time is over", other(unused.MemberID).ErrorCode, 25)
}

// B22, the live member: beside 20 abandoned joins the rebalance ends as soon as it joins again, and once their sessions are
// over it is alone. With KAJA_COMPAT_LONG it takes its time instead, and the abandoned joins end by themselves after 5 minutes.
func TestFieldB22RebalanceEnds(t *testing.T) {
	t.Parallel() // it waits, beside a broker of its own
	b := ownBroker(t, nil)
	c := dial(t, b)
	findCoordinator(t, c, "b22")
	c.Timeout = 60 * time.Second
	session := b22Real
	if long() {
		session = 20 * time.Minute
	}
	id := do[*kmsg.JoinGroupResponse](t, c, b22Join(9, "b22", "", session)).MemberID
	rejoin := func() *kmsg.JoinGroupResponse {
		t.Helper()
		req := b22Join(9, "b22", id, session)
		req.RebalanceTimeoutMillis = int32((20 * time.Minute).Milliseconds())
		resp := do[*kmsg.JoinGroupResponse](t, c, req)
		wantCode(t, "join", resp.ErrorCode, 0)
		return resp
	}
	beat := func(generation int32) int16 {
		t.Helper()
		req := kmsg.NewPtrHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.Generation = 4, "b22", id, generation
		return do[*kmsg.HeartbeatResponse](t, c, req).ErrorCode
	}
	generation := rejoin().Generation
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Version, sync.Group, sync.MemberID, sync.Generation = 3, "b22", id, generation
	wantCode(t, "sync", do[*kmsg.SyncGroupResponse](t, c, sync).ErrorCode, 0)

	const abandoned = 20
	for range abandoned { // sent and closed; DescribeGroups shows when the last has arrived
		d := dial(t, b)
		if _, err := d.Send(b22Join(3, "b22", "", b22Ghost)); err != nil {
			t.Fatal(err)
		}
	}
	members := func() int {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{"b22"}
		return len(do[*kmsg.DescribeGroupsResponse](t, c, req).Groups[0].Members)
	}
	awaitMembers := func(want int, atMost time.Duration) time.Duration {
		t.Helper()
		began := time.Now()
		err := poll.Until(t.Context(), atMost, fmt.Sprint(want, " members"), func() (bool, error) {
			n := members()
			return n == want, fmt.Errorf("%d members", n)
		})
		if err != nil {
			t.Fatal(err)
		}
		return time.Since(began)
	}
	awaitMembers(abandoned+1, 20*time.Second)
	wantCode(t, "heartbeat during the rebalance", beat(generation), 27)
	if long() {
		if took := awaitMembers(1, 6*time.Minute); took < 4*time.Minute {
			t.Errorf("abandoned joins ended after %v, the limit of a new member is 5 minutes", took)
		}
	}
	began := time.Now()
	second := rejoin()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the rebalance ended %v after the live member had joined", took)
	}
	if second.Generation != generation+1 {
		t.Errorf("generation %d after %d", second.Generation, generation)
	}
	if long() {
		return
	}
	// They do not beat: their sessions end, and the group rebalances to the one that lives.
	awaitMembers(1, 30*time.Second)
	if last := rejoin(); len(last.Members) != 1 || last.LeaderID != id {
		t.Errorf("last join: %d members, leader %q, want this member alone", len(last.Members), last.LeaderID)
	}
}

// ghosts sends 200 joins of old clients, each of which goes away after a second, and counts those refused with 81.
func ghosts(t *testing.T, b *target.Broker, join *kmsg.JoinGroupRequest) int64 {
	t.Helper()
	var refused atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			d, err := raw.Dial(b.Addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = d.Close() }()
			corr, err := d.Send(join)
			if err != nil {
				t.Error(err)
				return
			}
			d.Timeout = time.Second
			if resp, err := d.Receive(join, corr); err == nil && resp.(*kmsg.JoinGroupResponse).ErrorCode == 81 {
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	return refused.Load()
}

// B26: what a group can't agree on is refused and disturbs nobody; a rolling change of assignors works.
func TestFieldB26Assignors(t *testing.T) { onSizes(t, fieldB26Assignors) }

func fieldB26Assignors(t *testing.T, b *target.Broker) {
	topic, group := fresh(t, "b26"), fresh(t, "b26g")
	makeTopic(t, b, topic, 4, nil)
	fillPartitions(t, b, topic, 4)
	ranged, sticky := kgo.RangeBalancer(), kgo.CooperativeStickyBalancer()
	a := member(t, b, group, topic, kgo.Balancers(ranged), kgo.ClientID("a"))
	c := dial(t, b)
	describe := func() kmsg.DescribeGroupsResponseGroup {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version, req.Groups = 5, []string{group}
		return do[*kmsg.DescribeGroupsResponse](t, c, req).Groups[0]
	}
	join := func(protocolType string, protocols ...string) int16 {
		req := kmsg.NewPtrJoinGroupRequest()
		req.Version, req.Group, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 5, group, 10_000, 10_000
		req.ProtocolType = protocolType
		for _, name := range protocols {
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = name, []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
			req.Protocols = append(req.Protocols, p)
		}
		return do[*kmsg.JoinGroupResponse](t, c, req).ErrorCode
	}
	wantCode(t, "another assignor", join("consumer", "cooperative-sticky"), 23)
	wantCode(t, "another type", join("connect", "range"), 23)
	wantCode(t, "no protocol", join("consumer"), 23)
	wantCode(t, "no type", join("", "range"), 23)
	if g := describe(); g.State != "Stable" || len(g.Members) != 1 || g.Protocol != "range" {
		t.Errorf("group after refusals: %s, %d members, %s", g.State, len(g.Members), g.Protocol)
	}
	settle := func(what string, members int, protocols ...string) {
		t.Helper()
		err := poll.Until(t.Context(), 40*time.Second, what, func() (bool, error) {
			g := describe()
			return g.State == "Stable" && len(g.Members) == members && slices.Contains(protocols, g.Protocol),
				fmt.Errorf("%s, %d members, protocol %q", g.State, len(g.Members), g.Protocol)
		})
		if err != nil {
			t.Error(err)
		}
	}
	background := func(name string, balancers ...kgo.GroupBalancer) *kgo.Client {
		client := newClient(t, b, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.Balancers(balancers...), kgo.ClientID(name))
		keepPolling(t, client)
		return client
	}
	keepPolling(t, a)
	// The rolling change: one member after the other to what both know, then one after the other to the new one alone.
	c1 := background("c", ranged, sticky)
	settle("range is what both know", 2, "range")
	c1.Close()
	c2 := background("c", sticky, ranged)
	settle("one rolled, the other knows range alone", 2, "range")
	a.Close()
	a2 := background("a", sticky, ranged)
	settle("both vote for cooperative", 2, "cooperative-sticky")
	c2.Close()
	background("c", sticky)
	settle("one knows cooperative alone", 2, "cooperative-sticky")
	a2.Close()
	background("a", sticky)
	settle("rolled to cooperative", 2, "cooperative-sticky")
}

// B50: a group that was never used has no offsets, and that is no error.
func TestFieldB50UnknownGroup(t *testing.T) { onSizes(t, fieldB50UnknownGroup) }

func fieldB50UnknownGroup(t *testing.T, b *target.Broker) {
	topic := fresh(t, "b50")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	findCoordinator(t, c, "b50-never")
	for version := int16(1); version <= 9; version++ {
		for _, asked := range []string{topic, "b50-absent"} {
			var found []string
			err := poll.Until(t.Context(), 20*time.Second, "coordinator loaded", func() (bool, error) {
				resp := fetchOffsets(t, c, version, "b50-never", asked, 0, 3)
				found = nil
				if resp.ErrorCode != 0 {
					return false, fmt.Errorf("code %d", resp.ErrorCode)
				}
				for _, rt := range resp.Topics {
					for _, p := range rt.Partitions {
						found = append(found, fmt.Sprintf("%d %d %d %d %q", p.Partition, p.Offset, p.LeaderEpoch, p.ErrorCode, deref(p.Metadata)))
					}
				}
				for _, g := range resp.Groups {
					if g.ErrorCode != 0 {
						return false, fmt.Errorf("code %d", g.ErrorCode)
					}
					for _, rt := range g.Topics {
						for _, p := range rt.Partitions {
							found = append(found, fmt.Sprintf("%d %d %d %d %q", p.Partition, p.Offset, p.LeaderEpoch, p.ErrorCode, deref(p.Metadata)))
						}
					}
				}
				return true, nil
			})
			if err != nil {
				t.Fatalf("v%d of %s: %v", version, asked, err)
			}
			slices.Sort(found)
			if want := []string{`0 -1 -1 0 ""`, `3 -1 -1 0 ""`}; !slices.Equal(found, want) {
				t.Errorf("v%d of %s: %q, want %q", version, asked, found, want)
			}
		}
		if version >= 2 {
			resp := fetchOffsets(t, c, version, "b50-never", "")
			if len(resp.Topics) != 0 || resp.ErrorCode != 0 || (version >= 8 && (len(resp.Groups) != 1 || len(resp.Groups[0].Topics) != 0 || resp.Groups[0].ErrorCode != 0)) {
				t.Errorf("v%d of all topics: %+v, want an empty list", version, resp)
			}
		}
	}
	need(t, "kcat")
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values("one")...).Bytes())
	got := kcat(t, b, "", "-C", "-t", topic, "-p", "0", "-o", "stored", "-e", "-q", "-X", "group.id=b50-kcat", "-X", "auto.offset.reset=earliest")
	wantLines(t, "kcat from a stored offset that is not there", lines(got), []string{"one"})
}

func fillPartitions(t *testing.T, b *target.Broker, topic string, partitions int32) {
	t.Helper()
	c := dial(t, b)
	for p := range partitions {
		mustProduce(t, c, topic, p, raw.NewBatch(raw.Numbered(fmt.Sprintf("p%d-", p), 0, 5)...).Bytes())
	}
}

// keepPolling polls a client until it is closed; the test joins the goroutine at its end.
func keepPolling(t *testing.T, client *kgo.Client) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			fetches := client.PollFetches(t.Context())
			if fetches.IsClientClosed() || t.Context().Err() != nil {
				return
			}
		}
	})
	t.Cleanup(wg.Wait)
}
