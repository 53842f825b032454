package sim

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
)

// A member that was away for long, so that raft has failed to reach it very often, is told of what it has missed at once.
func TestMemberIsToldAtOnceWhatItHasMissed(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		members := found(t, q, 3)
		away := members[2]
		if q.Leader(time.Minute) == away {
			t.Fatal("the last one leads")
		}
		away.Kill()
		for i := range 100 {
			time.Sleep(2 * time.Second)
			if err := createOn(t.Context(), members[0], fmt.Sprintf("t%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		comesBack(t, q, away)
		converged(t, q)
	})
}

// comesBack starts a member, and wants it to have what the leader has within a second.
func comesBack(t *testing.T, q *Quorum, m *Member) {
	t.Helper()
	want := q.Leader(time.Minute).Controller().Image().Offset()
	began := time.Now()
	if err := m.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, m)
	for m.Controller().Image().Offset() < want && time.Since(began) < time.Minute {
		time.Sleep(time.Millisecond)
	}
	took := time.Since(began)
	t.Logf("it had what it has missed after %v", took)
	if took > time.Second {
		t.Errorf("it had what it has missed after %v", took)
	}
}

// missed is how many entries the member of the next test misses: KAJA_SIM_ENTRIES, else more than are kept behind a snapshot.
func missed(t *testing.T) int {
	text := os.Getenv("KAJA_SIM_ENTRIES")
	if text == "" {
		return 3000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("KAJA_SIM_ENTRIES: %v", err)
	}
	return n
}

// A member that lacks entries which are in the log no more is sent a snapshot as soon as it is back, also where it was killed
// while it was sent one before, so that raft has failed to send it very often since.
func TestMemberIsSentTheSnapshotAtOnce(t *testing.T) {
	if !locksMayWait {
		t.Skip("needs the tag sim: a disk hangs")
	}
	eachSeed(t, func(t *testing.T, seed uint64) {
		q := NewQuorum(t, seed)
		q.SnapshotBytes = 1 << 20
		members := found(t, q, 3)
		away := members[2]
		if q.Leader(time.Minute) == away {
			t.Fatal("the last one leads")
		}
		away.Kill()
		for i := range missed(t) { // as large as to fill segments of the log, of which only whole ones go
			value := fmt.Sprintf("%d%s", i, strings.Repeat("x", 4<<10))
			results, err := members[0].Controller().AlterConfigs(t.Context(), []raftctl.AlterConfigs{{
				Resource: image.Resource{Type: image.ResourceBroker}, Changes: []raftctl.ConfigChange{{Name: "of.nobody", Value: &value}}}}, false)
			if err != nil || results[0] != nil {
				t.Fatal(err, results)
			}
		}
		// It has too little of its own for a snapshot: the one that it begins is the leader's.
		const file = "*.snapshot" + vfs.TempSuffix
		hang, met := make(chan struct{}), make(chan struct{})
		away.faults = func(fs *faultfs.FS) {
			meet := sync.OnceFunc(func() { close(met) })
			fs.Before(func(op faultfs.Op, name string) {
				if ok, _ := path.Match(file, path.Base(name)); ok && op == faultfs.OpCreate {
					meet()
				}
			})
			fs.Add(faultfs.Rule{Op: faultfs.OpCreate, Path: file, Hang: hang})
		}
		if err := away.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-met
		away.Kill()
		close(hang)
		away.faults = nil
		time.Sleep(2 * time.Minute)
		comesBack(t, q, away)
		converged(t, q)
	})
}
