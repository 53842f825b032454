package groupcoord

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// The expected partitions are those of Java's abs(hashCode) % 50, where abs of the smallest int is 0.
func TestPartitionFor(t *testing.T) {
	for _, tc := range []struct {
		group string
		want  wire.PartitionID
	}{
		{"", 0},
		{"group-a2-s", 27}, // as found in a Kafka's __consumer_offsets
		{"group-a2-g", 15},
		{"group-a2-j2", 6},
		{"polygenelubricants", 0},    // hash is the smallest int
		{"\U0001F426", 1772425 % 50}, // one surrogate pair: 31*0xD83D + 0xDC26
		{"caf\u00e9", wire.PartitionID(3045921 % 50)}, // not its bytes
	} {
		if got := PartitionFor(tc.group, 50); got != tc.want {
			t.Errorf("PartitionFor(%q) = %d, want %d", tc.group, got, tc.want)
		}
	}
}

// Records that Kafka 4.4 wrote for a simple group, a static member and an empty group (B31): the machine reads them and
// would write them in the same bytes.
func TestRecordsAreKafkas(t *testing.T) {
	kafka := []struct{ key, value string }{
		{"0001000a67726f75702d61322d73000a67726f75702d61322d7400000000", "0004000000000000002affffffff026d000001a22924181f010010411189632baf489bba61926f574f3856"},
		{"0001000a67726f75702d61322d73000a67726f75702d61322d7400000001", "0004000000000000002a0000000301000001a2292418a1010010411189632baf489bba61926f574f3856"},
		{"0002000a67726f75702d61322d67", "0003000000000000ffffffff000001a22924198c00000000"},
		{"0002000a67726f75702d61322d67", "00030008636f6e73756d657200000001000572616e6765002769312d66643863373039642d313665302d343437652d383638622d366161306338376664393534000001a22924199600000001002769312d66643863373039642d313665302d343437652d383638622d366161306338376664393534000269310003677270000a2f3132372e302e302e31000027100000271000000016000000000001000a67726f75702d61322d74ffffffff00000000"},
	}
	m := newMachine(classic.Config{MaxSize: 10}, offsets.Config{MaxMetadata: 10}, quiet())
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		must(err)
		return b
	}
	for i, r := range kafka {
		if err := m.Replay(coord.Record{Key: unhex(r.key), Value: unhex(r.value)}, coord.Pos{Offset: wire.Offset(i)}); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	got, ok := m.groups.Describe("group-a2-g")
	if !ok || got.State != "Stable" || got.Protocol != "range" || len(got.Members) != 1 || got.Members[0].ClientHost != "/127.0.0.1" {
		t.Fatalf("group: %+v", got)
	}

	// The same commit and the same member, decided here.
	at := time.UnixMilli(0x1a22924181f)
	id := wire.UUID(unhex("411189632baf489bba61926f574f3856"))
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset, p.Metadata = 42, kmsg.StringPtr("m")
	d := m.offsets.Commit(1, at, offsets.CommitRequest{
		Version: 3, Group: "group-a2-s", Generation: -1, Retention: -1,
		Topics: []offsets.CommitTopic{{Name: "group-a2-t", ID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}},
	})
	sameBytes(t, "offset", d.Records[0], kafka[0].key, kafka[0].value)

	fresh := newMachine(classic.Config{MaxSize: 10, MaxSession: time.Hour}, offsets.Config{}, quiet())
	member := "i1-fd8c709d-16e0-447e-868b-6aa0c87fd954"
	subscription := unhex("000000000001000a67726f75702d61322d74ffffffff")
	do := func(d coord.Decision) []coord.Record {
		for _, r := range d.Records {
			must(fresh.Replay(r, coord.Pos{}))
		}
		d.Soft(nil)
		return d.Records
	}
	joined := do(fresh.groups.Join(1, time.UnixMilli(0x1a22924198c), classic.JoinRequest{
		Version: 9, Group: "group-a2-g", InstanceID: kmsg.StringPtr("i1"), NewMemberID: member, ClientID: "grp", ClientHost: "/127.0.0.1",
		Session: 10 * time.Second, Rebalance: 10 * time.Second, Type: "consumer",
		Protocols: []classic.Protocol{{Name: "range", Metadata: subscription}, {Name: "roundrobin", Metadata: subscription}},
	}))
	sameBytes(t, "new group", joined[0], kafka[2].key, kafka[2].value)
	do(fresh.groups.Expire(time.UnixMilli(0x1a22924198d), classic.Timer{Kind: classic.InitialJoinTimer, Group: "group-a2-g"}))
	synced := do(fresh.groups.Sync(2, time.UnixMilli(0x1a229241996), classic.SyncRequest{Group: "group-a2-g", MemberID: member, Generation: 1}))
	sameBytes(t, "member", synced[0], kafka[3].key, kafka[3].value)
	left := do(fresh.groups.Leave(3, at, "group-a2-g", []kmsg.LeaveGroupRequestMember{{MemberID: member}}))
	sameBytes(t, "empty group", left[0], kafka[2].key, "00030008636f6e73756d657200000002ffffffff000001a22924181f00000000")
}

func sameBytes(t *testing.T, name string, r coord.Record, key, value string) {
	t.Helper()
	if k, v := hex.EncodeToString(r.Key), hex.EncodeToString(r.Value); k != key || v != value {
		t.Errorf("%s\n got %s -> %s\nwant %s -> %s", name, k, v, key, value)
	}
}

func TestReplayOldAndUnknownRecords(t *testing.T) {
	offsetKey := func(v int16) []byte {
		k := kmsg.OffsetCommitKey{Version: v, Group: "g", Topic: "t"}
		return k.AppendTo(nil)
	}
	groupKey := func() []byte { k := kmsg.GroupMetadataKey{Version: 2, Group: "g"}; return k.AppendTo(nil) }
	offset := func(v int16) []byte {
		r := kmsg.OffsetCommitValue{Version: v, Offset: 7, LeaderEpoch: 3, CommitTimestamp: 1000, ExpireTimestamp: -1}
		return r.AppendTo(nil)
	}
	group := func(v int16) []byte {
		r := kmsg.GroupMetadataValue{Version: v, ProtocolType: "consumer", Generation: 4, CurrentStateTimestamp: 5}
		return r.AppendTo(nil)
	}
	for _, tc := range []struct {
		name       string
		key, value []byte
		fails      bool
		want       string // in the image
	}{
		{"offset key v0", offsetKey(0), offset(0), false, "offset=7 epoch=-1"},
		{"offset v1 without expiry", offsetKey(1), offset(1), false, "expire=-1"},
		{"offset v2", offsetKey(1), offset(2), false, "offset=7 epoch=-1"},
		{"offset v3", offsetKey(1), offset(3), false, "offset=7 epoch=3"},
		{"offset v4", offsetKey(1), offset(4), false, "offset=7 epoch=3"},
		{"offset v5 is from the future", offsetKey(1), offset(5), true, ""},
		{"group v0", groupKey(), group(0), false, "generation=4"},
		{"group v2", groupKey(), group(2), false, "since=5"},
		{"group v4", groupKey(), group(4), false, "since=5"},
		{"group v5 is from the future", groupKey(), group(5), true, ""},
		{"a record of another group protocol", []byte{0, 3, 0, 1, 'g'}, []byte{0, 0}, false, ""},
		{"truncated offset", offsetKey(1), offset(4)[:9], true, ""},
		{"truncated group", groupKey(), group(3)[:9], true, ""},
		{"truncated key", []byte{0, 1, 0, 9}, offset(4), true, ""},
		{"no key", nil, nil, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := newMachine(classic.Config{}, offsets.Config{}, quiet())
			err := m.Replay(coord.Record{Key: tc.key, Value: tc.value}, coord.Pos{})
			if (err != nil) != tc.fails || !strings.Contains(image(m), tc.want) {
				t.Fatalf("error %v, image %q", err, image(m))
			}
		})
	}
}

// FuzzReplay: no record of any bytes makes the machine panic, and what it accepts it can decide on.
func FuzzReplay(f *testing.F) {
	k := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t"}
	v := kmsg.OffsetCommitValue{Version: 4, TopicID: wire.UUID{1}}
	f.Add(k.AppendTo(nil), v.AppendTo(nil))
	gk := kmsg.GroupMetadataKey{Version: 2, Group: "g"}
	gv := kmsg.GroupMetadataValue{Version: 3, ProtocolType: "consumer", Protocol: kmsg.StringPtr("range"),
		Members: []kmsg.GroupMetadataValueMember{{MemberID: "m", Subscription: subscription("t")}}}
	f.Add(gk.AppendTo(nil), gv.AppendTo(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := newMachine(classic.Config{MaxSize: 1}, offsets.Config{}, quiet())
		if m.Replay(coord.Record{Key: key, Value: value}, coord.Pos{}) != nil {
			return
		}
		m.groups.Loaded(scriptStart).Soft(nil)
		m.groups.List(nil)
		for _, g := range m.groups.Groups() {
			m.groups.Describe(g)
			m.groups.Leave(1, scriptStart, g, []kmsg.LeaveGroupRequestMember{{MemberID: "m"}})
		}
		m.offsets.Expire(scriptStart, m.groups.Groups(), 10)
	})
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// memory is a partition log that commits at once.
type memory struct {
	mu      sync.Mutex
	records []coord.Record
	appends int
}

func (l *memory) Append(_ wire.LeaderEpoch, b coord.Batch, done func(wire.Offset, error)) (wire.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := wire.Offset(len(l.records))
	l.records, l.appends = append(l.records, b.Records...), l.appends+1
	end := wire.Offset(len(l.records))
	time.AfterFunc(0, func() { done(end, nil) })
	return base, nil
}

func (l *memory) Load(_ context.Context, m coord.Machine) (wire.Offset, error) {
	for i, r := range l.records {
		if err := m.Replay(r, coord.Pos{Offset: wire.Offset(i)}); err != nil {
			return 0, err
		}
	}
	return wire.Offset(len(l.records)), nil
}

func (l *memory) WaitCommitted(_ wire.Offset, done func(error)) { done(nil) }

// service is one with partitions of which all are led here.
func service(t *testing.T, partitions int, topics map[string]wire.UUID) (*Service, []*memory) {
	t.Helper()
	s := NewService(Options{
		Groups:  classic.Config{MinSession: time.Second, MaxSession: time.Hour, NewMember: classic.NewMemberTimeout, MaxSize: 1 << 30},
		Offsets: offsets.Config{MaxMetadata: 4096, Retention: time.Minute}, CommitTimeout: 5 * time.Second, CheckInterval: 5 * time.Second,
		NewMemberUUID: func() string { return "id" }, NumPartitions: func() int { return partitions },
		Topics: TopicIDs(func(name string) (wire.UUID, bool) { id, ok := topics[name]; return id, ok }), Logger: quiet(),
	})
	logs := make([]*memory, partitions)
	for p := range logs {
		logs[p] = &memory{}
		s.Elected(wire.PartitionID(p), 1, logs[p])
	}
	return s, logs
}

func (l *memory) appended() (records, appends int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.records), l.appends
}

// commitTo commits offset 1 of n partitions and waits for the answer.
func commitTo(t *testing.T, s *Service, group, topic string, id wire.UUID, n int) {
	t.Helper()
	r := offsets.CommitRequest{Version: 8, Group: group, Generation: -1, Retention: -1, Topics: []offsets.CommitTopic{{Name: topic, ID: id}}}
	for p := range n {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.OffsetCommitRequestTopicPartition{Partition: int32(p), Offset: 1, LeaderEpoch: -1})
	}
	answered := make(chan *kmsg.OffsetCommitResponse, 1)
	s.CommitOffsets(r, func(resp *kmsg.OffsetCommitResponse) { answered <- resp })
	if code := (<-answered).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("commit: code %d", code)
	}
}

func fetchAll(s *Service, group string) int {
	answered := make(chan kmsg.OffsetFetchResponseGroup, 1)
	s.FetchOffsets(FetchRequest{Group: group, All: true}, func(g kmsg.OffsetFetchResponseGroup) { answered <- g })
	n := 0
	for _, t := range (<-answered).Topics {
		n += len(t.Partitions)
	}
	return n
}

// TestSweepsExpire: the sweep runs by itself every interval, in appends of bounded size, and goes on after a reload.
func TestSweepsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := wire.UUID{3}
		s, logs := service(t, 1, map[string]wire.UUID{"t": id})
		defer s.Close()
		synctest.Wait()
		commitTo(t, s, "many", "t", id, 2500)
		for i := range 3 {
			commitTo(t, s, fmt.Sprint("few", i), "t", id, 1)
		}
		_, before := logs[0].appended()
		time.Sleep(59 * time.Second)
		if n := fetchAll(s, "many"); n != 2500 {
			t.Fatalf("%d offsets before the retention", n)
		}
		time.Sleep(7 * time.Second)
		if n := fetchAll(s, "many"); n != 0 {
			t.Fatalf("%d offsets after the retention", n)
		}
		records, after := logs[0].appended()
		if want := 2 * (2500 + 3); records != want+4 || after-before != 3 {
			t.Fatalf("%d records, want %d; %d appends of the sweep, want 3", records, want+4, after-before)
		}
		s.ListGroups(nil, nil, func(g []kmsg.ListGroupsResponseGroup, err *kerr.Error) {
			if len(g) != 0 || err != nil {
				t.Errorf("groups left: %v, %v", g, err)
			}
		})

		commitTo(t, s, "late", "t", id, 1)
		s.Resigned(0, 1)
		s.Elected(0, 2, logs[0])
		synctest.Wait()
		time.Sleep(66 * time.Second)
		if n := fetchAll(s, "late"); n != 0 {
			t.Fatalf("%d offsets after a reload and the retention", n)
		}
	})
}

// A coordinator that knows only that it lacks metadata tells offsets once it has them: what was committed by then, and no error. If
// it is outdated for another reason, or still is after it has waited, it tells none.
func TestFetchWaitsForMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := wire.UUID{3}
		s, _ := service(t, 1, map[string]wire.UUID{"t": id})
		defer s.Close()
		synctest.Wait()
		outdated, waits := true, 0
		s.o.Outdated = func() bool { return outdated }
		arrive := func() {}
		s.o.CatchUp = func(then func()) bool {
			waits++
			arrive = then
			return true
		}
		var got []kmsg.OffsetFetchResponseGroup
		fetch := func() {
			s.FetchOffsets(FetchRequest{Group: "g", All: true}, func(g kmsg.OffsetFetchResponseGroup) { got = append(got, g) })
			synctest.Wait()
		}
		check := func(when string, answers, topics int, code int16) {
			t.Helper()
			synctest.Wait()
			if len(got) != answers || answers > 0 && (len(got[answers-1].Topics) != topics || got[answers-1].ErrorCode != code) {
				t.Fatalf("%s: %+v", when, got)
			}
		}
		fetch()
		check("behind", 0, 0, 0)
		commitTo(t, s, "g", "t", id, 1)
		outdated = false
		arrive()
		check("caught up", 1, 1, 0)
		outdated = true
		fetch()
		arrive()
		check("outdated after all", 2, 0, kerr.NotCoordinator.Code)
		if waits != 2 {
			t.Errorf("%d waits, want one for each fetch", waits)
		}
		s.o.CatchUp = func(func()) bool { return false }
		fetch()
		check("nothing to wait for", 3, 0, kerr.NotCoordinator.Code)
	})
}

func TestTopicDeletedInEveryShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := wire.UUID{3}, wire.UUID{4}
		topics := map[string]wire.UUID{"t": old, "u": {5}}
		s, _ := service(t, 8, topics)
		defer s.Close()
		synctest.Wait()
		for i := range 40 {
			commitTo(t, s, fmt.Sprint("g", i), "t", old, 1)
			commitTo(t, s, fmt.Sprint("g", i), "u", topics["u"], 1)
		}
		commitTo(t, s, "wide", "t", old, 2500)
		commitTo(t, s, "again", "t", next, 1)
		delete(topics, "t")
		s.TopicDeleted("t", old)
		time.Sleep(time.Millisecond)
		for i := range 40 {
			if n := fetchAll(s, fmt.Sprint("g", i)); n != 1 {
				t.Fatalf("g%d has %d offsets, want u's alone", i, n)
			}
		}
		if n := fetchAll(s, "wide"); n != 0 {
			t.Fatalf("wide has %d offsets left", n)
		}
		if n := fetchAll(s, "again"); n != 1 {
			t.Fatal("the new topic's offset is gone")
		}
	})
}

// TestDeleteWideGroup: a group with more offsets than fit into one append goes in several, and is answered at the end.
func TestDeleteWideGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, logs := service(t, 1, nil)
		defer s.Close()
		synctest.Wait()
		commitTo(t, s, "wide", "t", wire.UUID{}, 2500)
		_, before := logs[0].appended()
		answered := make(chan []kmsg.DeleteGroupsResponseGroup, 1)
		s.DeleteGroups([]string{"wide", "none", "wide"}, func(g []kmsg.DeleteGroupsResponseGroup) { answered <- g })
		codes := make(map[string]int16)
		for _, g := range <-answered {
			codes[g.Group] = g.ErrorCode
		}
		if len(codes) != 2 || codes["wide"] != 0 || codes["none"] != kerr.GroupIDNotFound.Code {
			t.Fatalf("codes %v", codes)
		}
		if _, after := logs[0].appended(); after-before != 3 {
			t.Fatalf("%d appends, want 3", after-before)
		}
		if n := fetchAll(s, "wide"); n != 0 {
			t.Fatalf("%d offsets left", n)
		}
	})
}

// TestManyGroupsAreCheap: a group at rest costs its records and little more, and no timer or goroutine.
func TestManyGroupsAreCheap(t *testing.T) {
	const groups = 20_000
	m := newMachine(classic.Config{MaxSize: 10}, offsets.Config{MaxMetadata: 10}, quiet())
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range groups {
		k := kmsg.OffsetCommitKey{Version: 1, Group: fmt.Sprint("group-", i), Topic: "t"}
		v := kmsg.OffsetCommitValue{Version: 4, Offset: int64(i)}
		must(m.Replay(coord.Record{Key: k.AppendTo(nil), Value: v.AppendTo(nil)}, coord.Pos{}))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if per := (after.HeapAlloc - before.HeapAlloc) / groups; per > 2048 {
		t.Fatalf("%d bytes per group", per)
	}
	if n := m.groups.Len(); n != groups {
		t.Fatalf("%d groups", n)
	}
	runtime.KeepAlive(m)
}
