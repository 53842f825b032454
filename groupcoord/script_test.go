package groupcoord

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// TestScripts runs the scripts of both cores: each command is one operation on one shard, without a runtime; the
// output is everything that follows from it: records, replies, timers.
func TestScripts(t *testing.T) {
	for _, dir := range []string{"classic/testdata/script", "offsets/testdata/script"} {
		datadriven.Walk(t, dir, func(t *testing.T, path string) {
			s := newScript()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
		})
	}
}

// entry is a record in the script's log.
type entry struct {
	rec    coord.Record
	at     coord.Pos
	marker *coord.Marker // instead of a record
}

// script is a shard with a virtual clock, a log and timers.
type script struct {
	m      *machine
	groups classic.Config
	offs   offsets.Config
	log    []entry
	now    time.Time
	timers map[string]classic.Timer
	ids    int
	refuse error
	topics map[string]wire.UUID
	out    strings.Builder
}

var scriptStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newScript() *script {
	s := &script{
		groups: classic.Config{
			MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second,
			NewMember: classic.NewMemberTimeout, MaxSize: 1000,
		},
		offs:   offsets.Config{MaxMetadata: 10, Retention: time.Hour},
		now:    scriptStart,
		timers: make(map[string]classic.Timer),
		topics: map[string]wire.UUID{"t": {1}, "u": {2}},
	}
	s.m = s.machine()
	return s
}

func (s *script) machine() *machine {
	return newMachine(s.groups, s.offs, slog.New(slog.DiscardHandler))
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

// do carries a decision out as the runtime does, and prints it.
func (s *script) do(tok coord.Token, d coord.Decision) {
	var refused error
	if !d.Empty() {
		refused = s.append(d)
	}
	replies, effects := d.Replies, d.Effects
	if refused != nil {
		replies, effects = nil, nil
	}
	if d.Soft != nil {
		r, e := d.Soft(refused)
		replies, effects = append(replies, r...), append(effects, e...)
	}
	if refused != nil {
		s.printf("refused: %v", refused)
		if tok != 0 && !slices.ContainsFunc(replies, func(r coord.Reply) bool { return r.Token == tok }) {
			replies = append(replies, coord.Reply{Token: tok, Err: refused})
		}
	}
	for _, r := range replies {
		s.reply(r)
	}
	for _, e := range effects {
		if t, ok := e.(classic.Timer); ok {
			s.timer(t)
		}
	}
}

func (s *script) append(d coord.Decision) error {
	if s.refuse != nil {
		return s.refuse
	}
	if m := d.Marker; m != nil {
		s.log = append(s.log, entry{marker: m})
		s.printf("marker of producer %d, commit %v", m.ID, m.Commit)
		if err := s.m.ReplayMarker(m.ID, m.Epoch, m.Commit); err != nil {
			s.printf("REPLAY FAILED: %v", err)
		}
	}
	for _, r := range d.Records {
		at := coord.Pos{Offset: wire.Offset(len(s.log)), Timestamp: d.Timestamp, ProducerID: wire.NoProducer, ProducerEpoch: wire.NoEpoch}
		if d.Producer != nil {
			at.ProducerID, at.Transactional = d.Producer.ID, true
		}
		s.log = append(s.log, entry{rec: r, at: at})
		s.printf("record %s", showRecord(r))
		if err := s.m.Replay(r, at); err != nil {
			s.printf("REPLAY FAILED: %v", err)
		}
	}
	return nil
}

func (s *script) timer(t classic.Timer) {
	key := t.Key()
	if t.At.IsZero() {
		if _, ok := s.timers[key]; ok {
			s.printf("cancel %s", key)
		}
		delete(s.timers, key)
		return
	}
	s.timers[key] = t
	s.printf("timer %s in %v", key, t.At.Sub(s.now))
}

// advance moves the clock and fires what becomes due.
func (s *script) advance(by time.Duration) {
	end := s.now.Add(by)
	for {
		var next *classic.Timer
		for _, key := range sortedKeys(s.timers) {
			t := s.timers[key]
			if !t.At.After(end) && (next == nil || t.At.Before(next.At)) {
				next = &t
			}
		}
		if next == nil {
			s.now = end
			return
		}
		s.now = next.At
		delete(s.timers, next.Key())
		before := s.out.Len()
		s.do(0, s.m.groups.Expire(s.now, *next))
		if s.out.Len() > before {
			said := s.out.String()[before:]
			rest := s.out.String()[:before]
			s.out.Reset()
			s.out.WriteString(rest)
			s.printf("at %v, %s:", s.now.Sub(scriptStart), next.Key())
			s.out.WriteString(said)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func showRecord(r coord.Record) string {
	switch r.Key[1] {
	case typeGroupMetadata:
		var k kmsg.GroupMetadataKey
		must(k.ReadFrom(r.Key))
		if r.Value == nil {
			return fmt.Sprintf("group %s tombstone", k.Group)
		}
		var v kmsg.GroupMetadataValue
		must(v.ReadFrom(r.Value))
		var ms []string
		for _, m := range v.Members {
			ms = append(ms, fmt.Sprintf("%s=%q", m.MemberID, m.Assignment))
		}
		return fmt.Sprintf("group %s v%d generation=%d protocol=%s leader=%s members=[%s]", k.Group, v.Version, v.Generation,
			opt(v.Protocol), opt(v.Leader), strings.Join(ms, " "))
	default:
		var k kmsg.OffsetCommitKey
		must(k.ReadFrom(r.Key))
		if r.Value == nil {
			return fmt.Sprintf("offset %s %s-%d tombstone", k.Group, k.Topic, k.Partition)
		}
		var v kmsg.OffsetCommitValue
		must(v.ReadFrom(r.Value))
		s := fmt.Sprintf("offset %s %s-%d v%d %d", k.Group, k.Topic, k.Partition, v.Version, v.Offset)
		if v.Version == 1 {
			s += fmt.Sprintf(" expires at %v", time.UnixMilli(v.ExpireTimestamp).Sub(scriptStart))
		}
		return s
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func opt(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func codeName(code int16) string {
	if code == 0 {
		return "ok"
	}
	return kerr.TypedErrorForCode(code).Message
}

func (s *script) reply(r coord.Reply) {
	if r.Err != nil {
		s.printf("reply %d: failed, %v", r.Token, r.Err)
		return
	}
	switch b := r.Body.(type) {
	case int16:
		s.printf("reply %d: %s", r.Token, codeName(b))
	case *kmsg.JoinGroupResponse:
		if b.ErrorCode != 0 {
			s.printf("reply %d: %s member=%s", r.Token, codeName(b.ErrorCode), b.MemberID)
			return
		}
		var ms []string
		for _, m := range b.Members {
			ms = append(ms, m.MemberID)
		}
		skip := ""
		if b.SkipAssignment {
			skip = " skip-assignment"
		}
		s.printf("reply %d: joined member=%s generation=%d protocol=%s leader=%s members=%v%s", r.Token, b.MemberID, b.Generation,
			opt(b.Protocol), b.LeaderID, ms, skip)
	case *kmsg.SyncGroupResponse:
		if b.ErrorCode != 0 {
			s.printf("reply %d: %s", r.Token, codeName(b.ErrorCode))
			return
		}
		s.printf("reply %d: assigned %q protocol=%s", r.Token, b.MemberAssignment, opt(b.Protocol))
	case *kmsg.LeaveGroupResponse:
		var ms []string
		for _, m := range b.Members {
			ms = append(ms, fmt.Sprintf("%s/%s %s", m.MemberID, opt(m.InstanceID), codeName(m.ErrorCode)))
		}
		s.printf("reply %d: left %s", r.Token, strings.Join(ms, ", "))
	case *kmsg.OffsetCommitResponse:
		for _, t := range b.Topics {
			for _, p := range t.Partitions {
				s.printf("reply %d: %s-%d %s", r.Token, t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	case *kmsg.OffsetDeleteResponse:
		if b.ErrorCode != 0 {
			s.printf("reply %d: %s", r.Token, codeName(b.ErrorCode))
		}
		for _, t := range b.Topics {
			for _, p := range t.Partitions {
				s.printf("reply %d: %s-%d %s", r.Token, t.Topic, p.Partition, codeName(p.ErrorCode))
			}
		}
	default:
		s.printf("reply %d: %v", r.Token, b)
	}
}

// args are the arguments of a command, with defaults.
type args struct{ d *datadriven.TestData }

func (a args) str(key, def string) string {
	for _, c := range a.d.CmdArgs {
		if c.Key == key {
			return strings.Join(c.Vals, ",")
		}
	}
	return def
}

func (a args) list(key, def string) []string {
	v := a.str(key, def)
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

func (a args) opt(key string) *string {
	if v := a.str(key, ""); v != "" {
		return &v
	}
	return nil
}

func (a args) num(key string, def int) int {
	n, err := strconv.Atoi(a.str(key, strconv.Itoa(def)))
	must(err)
	return n
}

func (a args) dur(key, def string) time.Duration {
	d, err := time.ParseDuration(a.str(key, def))
	must(err)
	return d
}

func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return m.AppendTo(nil)
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.out.Reset()
	a := args{d}
	tok := coord.Token(a.num("tok", 0))
	group := a.str("group", "g")
	switch d.Cmd {
	case "config":
		s.groups.MaxSize = a.num("max-size", s.groups.MaxSize)
		s.groups.MaxProtocols = a.num("max-protocols", s.groups.MaxProtocols)
		s.groups.InitialDelay = a.dur("initial-delay", s.groups.InitialDelay.String())
		s.m, s.log, s.timers = s.machine(), nil, make(map[string]classic.Timer)
	case "join":
		s.join(a, tok, group)
	case "sync":
		assigned := make(map[string][]byte)
		for _, kv := range a.list("assign", "") {
			m, v, _ := strings.Cut(kv, ":")
			assigned[m] = []byte(v)
		}
		s.do(tok, s.m.groups.Sync(tok, s.now, classic.SyncRequest{
			Group: group, MemberID: a.str("member", ""), InstanceID: a.opt("instance"), Generation: int32(a.num("generation", 0)),
			Type: a.opt("type"), Protocol: a.opt("protocol"), Assignments: assigned,
		}))
	case "heartbeat":
		s.do(tok, s.m.groups.Heartbeat(tok, s.now, classic.HeartbeatRequest{
			Group: group, MemberID: a.str("member", ""), InstanceID: a.opt("instance"), Generation: int32(a.num("generation", 0)),
		}))
	case "leave":
		var ms []kmsg.LeaveGroupRequestMember
		for _, who := range a.list("members", "") {
			id, inst, found := strings.Cut(who, "/")
			m := kmsg.LeaveGroupRequestMember{MemberID: id}
			if found {
				m.InstanceID = &inst
			}
			ms = append(ms, m)
		}
		s.do(tok, s.m.groups.Leave(tok, s.now, group, ms))
	case "advance":
		s.advance(a.dur("by", "0s"))
	case "wall": // the wall clock jumps; timers, which are monotonic, do not
		by := a.dur("by", "0s")
		s.now = s.now.Add(by)
		for k, tm := range s.timers {
			tm.At = tm.At.Add(by)
			s.timers[k] = tm
		}
	case "refuse":
		s.refuse = nil
		if name := a.str("with", ""); name != "" {
			s.refuse = kerr.ErrorForCode(int16(a.num("with", 0)))
		}
	case "describe":
		s.describe(group)
	case "list":
		for _, g := range s.m.groups.List(a.list("states", "")) {
			s.printf("%s type=%q %s", g.Group, g.ProtocolType, g.GroupState)
		}
	case "reload":
		s.groups.MaxSize = a.num("max-size", s.groups.MaxSize)
		s.reload(t)
	default:
		s.runOffsets(t, a, tok, group)
	}
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

func (s *script) join(a args, tok coord.Token, group string) {
	r := classic.JoinRequest{
		Version: int16(a.num("v", 9)), Group: group, MemberID: a.str("member", ""), InstanceID: a.opt("instance"),
		ClientID: a.str("client", "c"), ClientHost: "/10.0.0.1", Session: a.dur("session", "10s"),
		Rebalance: a.dur("rebalance", "60s"), Type: a.str("type", "consumer"),
	}
	prefix := r.ClientID
	if r.InstanceID != nil {
		prefix = *r.InstanceID
	}
	if r.MemberID == "" {
		s.ids++
		r.NewMemberID = fmt.Sprintf("%s-%d", prefix, s.ids)
	}
	for _, p := range a.list("protocols", "range") {
		r.Protocols = append(r.Protocols, classic.Protocol{Name: p, Metadata: subscription(a.list("topics", "t")...)})
	}
	s.do(tok, s.m.groups.Join(tok, s.now, r))
}

func (s *script) describe(group string) {
	g, ok := s.m.groups.Describe(group)
	s.printf("%s %s exists=%v type=%q protocol=%q", g.Group, g.State, ok, g.ProtocolType, g.Protocol)
	for _, m := range g.Members {
		s.printf("  %s instance=%s client=%s host=%s metadata=%d bytes assignment=%q", m.MemberID, opt(m.InstanceID), m.ClientID,
			m.ClientHost, len(m.ProtocolMetadata), m.MemberAssignment)
	}
}

// reload drops the machine and loads another from the log, which must hold the same hard state.
func (s *script) reload(t *testing.T) {
	live := image(s.m)
	s.m, s.timers = replayed(t, s.machine(), s.log), make(map[string]classic.Timer)
	if loaded := image(s.m); loaded != live {
		t.Fatalf("replay differs from live\nlive:\n%s\nloaded:\n%s", live, loaded)
	}
	s.do(0, s.m.groups.Loaded(s.now))
}

func image(m *machine) string { return m.groups.Image() + m.offsets.Image() }

func replayed(t interface{ Fatalf(string, ...any) }, m *machine, log []entry) *machine {
	for _, e := range log {
		var err error
		if e.marker != nil {
			err = m.ReplayMarker(e.marker.ID, e.marker.Epoch, e.marker.Commit)
		} else {
			err = m.Replay(e.rec, e.at)
		}
		if err != nil {
			t.Fatalf("replay: %v", err)
		}
	}
	return m
}
