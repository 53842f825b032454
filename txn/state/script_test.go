package state

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// TestScripts runs the scripts: each command is one operation on one shard, without a runtime; the output is everything
// that follows from it: records (as the state they make), replies, markers. After every command a second state is made
// from the log alone and compared.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		s := newScript(t)
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t       *testing.T
	s       *State
	log     []coord.Record
	now     time.Time
	cluster Version
	refuse  error
	fresh   wire.ProducerID
	out     strings.Builder
}

var scriptStart = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

var scriptConfig = Config{MaxTimeoutMs: 900_000, Expiration: 7 * 24 * time.Hour}

func newScript(t *testing.T) *script {
	return &script{t: t, s: New(scriptConfig), now: scriptStart, cluster: V2, fresh: 1000}
}

// do carries a decision out as the runtime does, and prints it.
func (s *script) do(d coord.Decision) {
	refused := error(nil)
	if !d.Empty() {
		if refused = s.refuse; refused == nil {
			s.log = append(s.log, d.Records...)
			for _, rec := range d.Records {
				if err := s.s.Replay(rec, coord.Pos{}); err != nil {
					s.t.Fatal(err)
				}
			}
		}
	}
	if d.Soft != nil {
		d.Soft(refused)
	}
	if refused != nil {
		fmt.Fprintf(&s.out, "refused: %v\n", refused)
		return
	}
	for _, r := range d.Replies {
		switch b := r.Body.(type) {
		case Reply:
			fmt.Fprintf(&s.out, "%s\n", replyText(b))
		case VerifyReply:
			fmt.Fprintf(&s.out, "%s missing=%v\n", errText(b.Err), b.Missing)
		}
	}
	for _, e := range d.Effects {
		m := e.(SendMarkers)
		fmt.Fprintf(&s.out, "markers %s %d/%d commit=%v v%d %v\n", m.ID, m.Producer.ID, m.Producer.Epoch, m.Commit, m.Version, m.Partitions)
	}
	if len(d.Records) > 0 {
		s.out.WriteString(s.s.Image())
	}
	if got, want := replayed(s.t, s.log).Image(), s.s.Image(); got != want {
		s.t.Fatalf("replay of the log gives\n%swant\n%s", got, want)
	}
}

func replayed(t *testing.T, log []coord.Record) *State {
	s := New(scriptConfig)
	for _, rec := range log {
		if err := s.Replay(rec, coord.Pos{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func errText(err *kerr.Error) string {
	if err == nil {
		return "NONE"
	}
	return err.Message
}

func replyText(r Reply) string {
	switch {
	case r.NeedsID:
		return "needs an id"
	case r.Err != nil:
		return r.Err.Message
	}
	return fmt.Sprintf("NONE %d/%d", r.Producer.ID, r.Producer.Epoch)
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	s.t = t
	s.out.Reset()
	s.now = s.now.Add(time.Millisecond)
	id := "tx"
	d.MaybeScanArgs(t, "id", &id)
	var client int
	d.MaybeScanArgs(t, "v", &client)
	switch d.Cmd {
	case "cluster":
		s.cluster = Version(client)
	case "init":
		r := InitRequest{ID: id, TimeoutMs: 60_000, Cluster: s.cluster, Fresh: wire.NoProducer}
		d.MaybeScanArgs(t, "timeout", &r.TimeoutMs)
		if d.HasArg("expected") {
			p := producerArg(t, d, "expected")
			r.Expected = &p
		}
		if d.HasArg("fresh") {
			r.Fresh = s.fresh
			s.fresh++
		}
		s.do(s.s.InitProducerID(1, s.now, r))
	case "add", "verify":
		r := AddRequest{ID: id, Producer: producerArg(t, d, "p"), Client: Version(client), Cluster: s.cluster}
		for line := range strings.FieldsSeq(d.Input) {
			topic, n, _ := strings.Cut(line, "/")
			var p int32
			fmt.Sscan(n, &p)
			r.Partitions = append(r.Partitions, wire.TopicPartition{Topic: topic, Partition: wire.PartitionID(p)})
		}
		if d.Cmd == "add" {
			s.do(s.s.AddPartitions(1, s.now, r))
		} else {
			s.do(s.s.Verify(1, r))
		}
	case "commit", "abort":
		r := EndRequest{ID: id, Producer: producerArg(t, d, "p"), Commit: d.Cmd == "commit", Client: Version(client), Cluster: s.cluster, Fresh: wire.NoProducer}
		if d.HasArg("fresh") {
			r.Fresh = s.fresh
			s.fresh++
		}
		s.do(s.s.EndTxn(1, s.now, r))
	case "written":
		s.do(s.s.Complete(s.now, SendMarkers{ID: id, Producer: producerArg(t, d, "p"), Commit: d.HasArg("commit")}, s.cluster))
	case "wait":
		var by string
		d.ScanArgs(t, "by", &by)
		dur, err := time.ParseDuration(by)
		if err != nil {
			t.Fatal(err)
		}
		s.now = s.now.Add(dur)
	case "sweep":
		abort, _ := s.s.AbortTimedOut(s.now, s.s.IDs(), s.cluster)
		s.do(abort)
		expire, _ := s.s.Expire(s.now, s.s.IDs())
		s.do(expire)
	case "refuse":
		s.refuse = kerr.NotEnoughReplicas
	case "accept":
		s.refuse = nil
	case "reload":
		s.s = replayed(t, s.log)
		s.do(s.s.Loaded())
	case "epoch": // puts the id at an epoch, as 32,000 transactions would
		tx := *s.s.byID[id]
		d.ScanArgs(t, "is", (*int16)(&tx.Epoch))
		s.do(tx.write(s.cluster, s.now))
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
	if s.out.Len() == 0 {
		return "ok\n"
	}
	return s.out.String()
}

func producerArg(t *testing.T, d *datadriven.TestData, key string) Producer {
	var text string
	d.ScanArgs(t, key, &text)
	var p Producer
	if _, err := fmt.Sscanf(text, "%d/%d", &p.ID, &p.Epoch); err != nil {
		t.Fatal(err)
	}
	return p
}
