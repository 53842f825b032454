package classic

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
)

var testStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// TestDecisionsReadOnly: an operation whose decision is thrown away has left nothing behind.
func TestDecisionsReadOnly(t *testing.T) {
	s := New(Config{MinSession: time.Second, MaxSession: time.Hour, NewMember: time.Minute, MaxSize: 10})
	show := func() string {
		var b strings.Builder
		b.WriteString(s.Image())
		for _, id := range s.Groups() {
			g, _ := s.view(id)
			b.WriteString(g.phase.String())
			for _, m := range g.sorted() {
				b.WriteString(m.id)
			}
		}
		return b.String()
	}
	join := func(tok coord.Token, id, member string) coord.Decision {
		return s.Join(tok, testStart, JoinRequest{
			Version: 3, Group: "g", MemberID: member, NewMemberID: id, Session: time.Second, Rebalance: time.Second, Type: "consumer",
			Protocols: []Protocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 0}}},
		})
	}
	carry := func(d coord.Decision) {
		for _, r := range d.Records {
			if err := s.ReplayMetadata("g", r.Value); err != nil {
				t.Fatal(err)
			}
		}
		d.Soft(nil)
	}
	ops := map[string]func() coord.Decision{
		"join":   func() coord.Decision { return join(9, "z", "") },
		"rejoin": func() coord.Decision { return join(9, "", "a") },
		"sync": func() coord.Decision {
			return s.Sync(9, testStart, SyncRequest{Group: "g", MemberID: "a", Generation: 1})
		},
		"leave": func() coord.Decision { return s.Leave(9, testStart, "g", leaving("a")) },
		"heartbeat": func() coord.Decision {
			return s.Expire(testStart, Timer{Kind: HeartbeatTimer, Group: "g", Member: "a"})
		},
		"join over": func() coord.Decision { return s.Expire(testStart, Timer{Kind: InitialJoinTimer, Group: "g"}) },
		"sync over": func() coord.Decision { return s.Expire(testStart, Timer{Kind: SyncTimer, Group: "g", Generation: 1}) },
		"loaded":    func() coord.Decision { return s.Loaded(testStart) },
	}
	phases := []func(){
		func() {}, // no group
		func() { carry(join(1, "a", "")) },
		func() { carry(s.Expire(testStart, Timer{Kind: InitialJoinTimer, Group: "g"})) },
		func() { carry(s.Sync(2, testStart, SyncRequest{Group: "g", MemberID: "a", Generation: 1})) },
		func() { carry(s.Leave(3, testStart, "g", leaving("a"))) },
	}
	for i, next := range phases {
		next()
		before := show()
		for name, op := range ops {
			op()
			if after := show(); after != before {
				t.Fatalf("phase %d: %s changed the state before it was carried out\nbefore %s\nafter  %s", i, name, before, after)
			}
		}
	}
}

func leaving(id string) []kmsg.LeaveGroupRequestMember {
	return []kmsg.LeaveGroupRequestMember{{MemberID: id}}
}
