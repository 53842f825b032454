package groupcoord

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// walk is one random history of a shard.
type walk struct {
	*script
	t       *rapid.T
	replica *machine // replays the log as it grows, and does nothing else
	applied int
	next    coord.Token
	open    map[coord.Token]bool // asked and not answered yet
	members map[string][]string  // ids that joins gave out, by group
}

// carry does a decision and checks what must hold after every step.
func (w *walk) carry(tok coord.Token, d coord.Decision) {
	before := image(w.m)
	records := len(w.log)
	w.out.Reset()
	w.do(tok, d)
	if len(w.log) == records {
		if after := image(w.m); after != before {
			w.t.Fatalf("hard state changed without a record\nbefore:\n%s\nafter:\n%s", before, after)
		}
	}
	w.check()
}

func (w *walk) check() {
	for ; w.applied < len(w.log); w.applied++ {
		replayed(w.t, w.replica, w.log[w.applied:w.applied+1])
	}
	if live, replay := image(w.m), image(w.replica); live != replay {
		w.t.Fatalf("live and replay differ\nlive:\n%s\nreplay:\n%s", live, replay)
	}
	if strings.Contains(w.out.String(), "REPLAY FAILED") {
		w.t.Fatal(w.out.String())
	}
	for _, line := range strings.Split(w.out.String(), "\n") {
		var tok coord.Token
		if n, _ := fmt.Sscanf(line, "reply %d:", &tok); n == 1 && tok != 0 {
			if !w.open[tok] {
				w.t.Fatalf("token %d answered twice or never asked: %s", tok, line)
			}
			delete(w.open, tok)
		}
	}
}

func (w *walk) token() coord.Token {
	w.next++
	w.open[w.next] = true
	return w.next
}

func (w *walk) pick(name string, of ...string) string { return rapid.SampledFrom(of).Draw(w.t, name) }

func (w *walk) group() string { return w.pick("group", "g", "g", "g", "h") }

// member picks somebody: mostly a member that the group has.
func (w *walk) member(group string) string {
	if d, _ := w.m.groups.Describe(group); len(d.Members) > 0 && rapid.IntRange(0, 9).Draw(w.t, "who") < 7 {
		return d.Members[rapid.IntRange(0, len(d.Members)-1).Draw(w.t, "which")].MemberID
	}
	return rapid.SampledFrom(append([]string{"", "nobody"}, w.members[group]...)).Draw(w.t, "member")
}

func (w *walk) instance() *string {
	if v := w.pick("instance", "", "", "i", "j"); v != "" {
		return &v
	}
	return nil
}

func (w *walk) generation() int32 { return rapid.Int32Range(-1, 6).Draw(w.t, "generation") }

func (w *walk) join() {
	g := w.group()
	w.ids++
	r := classic.JoinRequest{
		Version: rapid.SampledFrom([]int16{0, 3, 4, 9}).Draw(w.t, "version"), Group: g, MemberID: w.member(g), ClientID: "c",
		Session: 10 * time.Second, Rebalance: rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute}).Draw(w.t, "rebalance"),
		Type: w.pick("type", "consumer", "consumer", "consumer", "consumer", "consumer", "consumer", "consumer", "connect"),
	}
	r.InstanceID = w.instance()
	if r.InstanceID != nil && rapid.IntRange(0, 3).Draw(w.t, "new") > 0 {
		r.MemberID = "" // as static members come back
	}
	if r.MemberID == "" {
		r.NewMemberID = fmt.Sprintf("m%d", w.ids)
		w.members[g] = append(w.members[g], r.NewMemberID)
	}
	for _, p := range rapid.SampledFrom([][]string{{"range"}, {"range", "rr"}, {"rr", "range"}, {"range", "rr"}, {"rr", "range"}, {"rr"}, {}}).Draw(w.t, "protocols") {
		r.Protocols = append(r.Protocols, classic.Protocol{Name: p, Metadata: subscription(w.pick("topic", "t", "u"))})
	}
	tok := w.token()
	w.carry(tok, w.m.groups.Join(tok, w.now, r))
}

// actual gives the member's group generation half of the time, so that valid requests are frequent.
func (w *walk) actual(group string) int32 {
	if rapid.Bool().Draw(w.t, "actual") {
		for gen := int32(0); gen < 100; gen++ {
			for _, m := range w.members[group] {
				if w.m.groups.ValidateCommit(group, m, nil, gen, 9) == nil {
					return gen
				}
			}
		}
	}
	return w.generation()
}

func (w *walk) sync() {
	g := w.group()
	assigned := make(map[string][]byte)
	for _, m := range w.members[g] {
		assigned[m] = []byte(m)
	}
	// A join that has just completed gave generations that only the state knows: try some.
	member := w.member(g)
	var inst *string
	if rapid.IntRange(0, 4).Draw(w.t, "static") == 0 {
		inst = w.instance()
	}
	for gen := w.generation(); gen < 8; gen++ {
		tok := w.token()
		w.carry(tok, w.m.groups.Sync(tok, w.now, classic.SyncRequest{
			Group: g, MemberID: member, InstanceID: inst, Generation: gen, Assignments: assigned,
		}))
	}
}

func (w *walk) heartbeat() {
	g := w.group()
	tok := w.token()
	w.carry(tok, w.m.groups.Heartbeat(tok, w.now, classic.HeartbeatRequest{
		Group: g, MemberID: w.member(g), InstanceID: w.instance(), Generation: w.actual(g),
	}))
}

func (w *walk) leave() {
	g := w.group()
	tok := w.token()
	w.carry(tok, w.m.groups.Leave(tok, w.now, g, []kmsg.LeaveGroupRequestMember{
		{MemberID: w.member(g), InstanceID: w.instance()}, {MemberID: w.member(g)},
	}))
}

func (w *walk) commit() {
	g := w.group()
	p := kmsg.OffsetCommitRequestTopicPartition{Partition: rapid.Int32Range(0, 1).Draw(w.t, "partition"), Offset: rapid.Int64Range(0, 9).Draw(w.t, "offset")}
	name := w.pick("topic", "t", "u")
	d := w.m.offsets.Commit(0, w.now, offsets.CommitRequest{
		Version: 9, Group: g, MemberID: w.member(g), InstanceID: w.instance(), Generation: w.actual(g),
		Retention: rapid.SampledFrom([]int64{-1, -1, 60_000}).Draw(w.t, "retention"),
		Topics:    []offsets.CommitTopic{{Name: name, ID: w.topics[name], Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}},
	})
	if len(d.Records) > 0 && rapid.IntRange(0, 4).Draw(w.t, "transactional") == 0 {
		d.Producer = &coord.ProducerRef{ID: wire.ProducerID(rapid.IntRange(1, 2).Draw(w.t, "producer"))}
	}
	w.carry(0, d)
}

// marker ends a producer's transaction, open or not.
func (w *walk) marker() {
	w.carry(0, coord.Decision{Batch: coord.Batch{Timestamp: w.now, Marker: &coord.Marker{
		ProducerRef: coord.ProducerRef{ID: wire.ProducerID(rapid.IntRange(1, 2).Draw(w.t, "producer"))},
		Commit:      rapid.Bool().Draw(w.t, "commit marker"),
	}}})
}

func (w *walk) admin() {
	g := w.group()
	switch rapid.IntRange(0, 3).Draw(w.t, "admin") {
	case 0:
		if w.m.groups.ValidateDelete(g) == nil {
			w.carry(0, coord.Decision{Batch: coord.Batch{Records: w.m.offsets.DeleteGroup(g), Timestamp: w.now}})
		}
	case 1:
		w.carry(0, w.m.offsets.Delete(0, w.now, g, []kmsg.OffsetDeleteRequestTopic{{Topic: w.pick("topic", "t", "u"),
			Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}))
	case 2:
		name := w.pick("topic", "t", "u")
		d, _ := w.m.offsets.DropTopic(w.now, name, w.topics[name], 1000)
		w.carry(0, d)
	case 3:
		d, _ := w.m.offsets.Expire(w.now, w.m.groups.Groups(), 1000)
		w.carry(0, d)
	}
}

// time passes: timers fire.
func (w *walk) time(by time.Duration) {
	w.out.Reset()
	w.advance(by)
	w.check()
}

// restart drops the machine; who waits gets no answer from the old one.
func (w *walk) restart() {
	w.m, w.timers = replayed(w.t, w.machine(), w.log), make(map[string]classic.Timer)
	clear(w.open)
	w.carry(0, w.m.groups.Loaded(w.now))
}

func newWalk(t *rapid.T) *walk {
	w := &walk{
		script: newScript(), t: t, open: make(map[coord.Token]bool), members: make(map[string][]string),
	}
	w.groups.MaxSize, w.groups.InitialDelay = 4, time.Second
	w.m, w.replica = w.machine(), w.machine()
	return w
}

// TestMain makes random histories long enough to pass through several generations.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.steps", "200"); err != nil {
		panic(err)
	}
	m.Run()
}

// TestReplayEquality (G5): after every operation of a random history the hard state is what a replay of the log makes,
// and an operation without records leaves it alone; offsets in transactions, their markers, plain commits and expiry race
// each other (T8). When time passes, everyone who waits is answered. A compacted log
// gives the same state.
func TestReplayEquality(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWalk(t)
		step := map[string]func(*rapid.T){
			"join": func(*rapid.T) { w.join() }, "join again": func(*rapid.T) { w.join() }, "sync": func(*rapid.T) { w.sync() },
			"heartbeat": func(*rapid.T) { w.heartbeat() }, "commit": func(*rapid.T) { w.commit() },
			"marker": func(*rapid.T) { w.marker() },
			"admin":  func(*rapid.T) { w.admin() }, "sync again": func(*rapid.T) { w.sync() },
			"leave": func(*rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "leave") == 0 {
					w.leave()
				}
			},
			"restart": func(*rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
					w.restart()
				}
			},
			"time": func(*rapid.T) {
				w.time(time.Duration(rapid.IntRange(1, rapid.SampledFrom([]int{2, 2, 2, 30}).Draw(t, "at most")).Draw(t, "seconds")) * time.Second)
			},
			"refuse": func(*rapid.T) {
				w.refuse = nil
				if rapid.IntRange(0, 3).Draw(t, "refuse") == 0 {
					w.refuse = fmt.Errorf("refused")
				}
			},
		}
		t.Repeat(step)
		w.refuse = nil
		for range 60 {
			w.time(time.Minute)
		}
		if len(w.open) > 0 {
			t.Fatalf("tokens never answered: %v", w.open)
		}
		if len(w.timers) > 0 {
			t.Fatalf("timers left: %v", w.timers)
		}
		compacted(w)
	})
}

// compacted compares the state with that of the log's newest record per key. A group that is nothing but the memory
// of an offset that was deleted is gone with that offset's record.
func compacted(w *walk) {
	for _, e := range w.log {
		if e.at.Transactional || e.marker != nil {
			return // compaction of transactions is the log's
		}
	}
	newest := make(map[string]int)
	for i, e := range w.log {
		newest[string(e.rec.Key)] = i
	}
	var log []entry
	for i, e := range w.log {
		if newest[string(e.rec.Key)] == i {
			log = append(log, e)
		}
	}
	known := func(m *machine) string {
		var lines []string
		for _, l := range strings.Split(image(m), "\n") {
			if !strings.HasSuffix(l, `type="" generation=0 protocol=- leader=- since=-1`) {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, "\n")
	}
	if live, again := known(w.m), known(replayed(w.t, w.machine(), log)); live != again {
		w.t.Fatalf("a compacted log differs\nlive:\n%s\ncompacted:\n%s", live, again)
	}
}
