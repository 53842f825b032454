package compattests_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	matrixInputs  = strings.Fields("users shops orders payments")                                                                                                 //nolint:gochecknoglobals // a table
	matrixOutputs = strings.Fields("join leftjoin outerjoin tablejoin tableleftjoin foreign tables tumbling hopping sliding session suppressed reduced gathered") //nolint:gochecknoglobals // a table
)

// streamsRun is one application of Kafka Streams with one of each kind of operation (java/StreamsMatrix.java), on some nodes.
type streamsRun struct {
	bootstrap string
	replicas  int
	name      string
	guarantee string
	base      time.Time // of the first record
	admin     *kadm.Client
	client    *kgo.Client
}

// Joins, windows, repartitioning and state of Kafka Streams give on the broker under test what they give on a real Kafka: with
// exactly_once_v2 through a kill of the application, whose state then comes from its changelogs. Afterwards
// kafka-streams-application-reset takes everything back. The long tests let the same come out again, and have three nodes, one of which is
// killed, and at_least_once through a stop.
func TestStreamsMatrix(t *testing.T) {
	need(t, "java")
	base := time.Now().Truncate(time.Minute).Add(-time.Hour)
	reference := newStreamsRun(t, examReference(t).Addr, 1, "matrix", "exactly_once_v2", base)
	want := reference.outputs(t, nil)
	for kind, records := range want {
		if len(records) == 0 {
			t.Errorf("%s: nothing comes out of Kafka: the application shows nothing", kind)
		}
	}
	compare := func(t *testing.T, got map[string][]string) {
		t.Helper()
		for _, kind := range matrixOutputs {
			if diff := cmp.Diff(want[kind], got[kind]); diff != "" {
				t.Errorf("%s (-Kafka 4.4 +broker under test)\n%.3000s", kind, diff)
			}
		}
	}
	onNodesLong(t, func(t *testing.T, nodes []*target.Broker) {
		strike := func() {}
		if len(nodes) > 1 {
			strike = func() {
				if err := nodes[0].Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		run := newStreamsRun(t, addresses(nodes), len(nodes), "matrix", "exactly_once_v2", base)
		compare(t, run.outputs(t, strike))
		if len(nodes) == 1 {
			run.resetAgain(t, nodes[0], reference)
			if long() {
				compare(t, newStreamsRun(t, addresses(nodes), 1, "at-least-once", "at_least_once", base).outputs(t, nil))
			}
		}
	})
}

func newStreamsRun(t *testing.T, bootstrap string, replicas int, name, guarantee string, base time.Time) *streamsRun {
	t.Helper()
	client := clientAt(t, bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r := &streamsRun{bootstrap: bootstrap, replicas: replicas, name: name, guarantee: guarantee, base: base, admin: kadm.NewClient(client), client: client}
	var topics []string
	for _, kind := range matrixInputs {
		topics = append(topics, name+"-"+kind)
	}
	for _, kind := range matrixOutputs {
		topics = append(topics, name+"-out-"+kind)
	}
	makeTopics(t, bootstrap, 1, replicas, topics...)
	return r
}

// start starts the application with a directory of its own and waits until it runs.
func (r *streamsRun) start(t *testing.T) *process {
	t.Helper()
	p := startFollowing(t, nil, "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(need(t, "java").Jars(), "*"),
		"java/StreamsMatrix.java", r.bootstrap, r.name, r.guarantee, strconv.Itoa(r.replicas), t.TempDir())
	err := poll.Until(t.Context(), connectWithin, "the application runs", func() (bool, error) {
		return strings.Contains(p.out.String(), "RUNNING\n"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// outputs runs the application through two parts of the input and gives what came out. Between the two it is killed, or with
// at_least_once stopped; strike, if there is one, is called after the start of the second.
func (r *streamsRun) outputs(t *testing.T, strike func()) map[string][]string {
	t.Helper()
	r.write(t, 0)
	p := r.start(t)
	r.awaitIdle(t, p)
	if r.guarantee == "at_least_once" {
		r.stop(t, p)
	} else {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	r.write(t, 1)
	p = r.start(t)
	if strike != nil {
		strike()
	}
	r.awaitIdle(t, p)
	r.stop(t, p)
	out := map[string][]string{}
	for _, kind := range matrixOutputs {
		out[kind] = r.read(t, kind)
	}
	return out
}

// stop ends the application by closing its standard input.
func (r *streamsRun) stop(t *testing.T, p *process) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
	case <-time.After(connectWithin):
		t.Fatal("the application does not stop")
	}
}

// write writes a part of the input. What is joined as a table is older than what it is joined with.
func (r *streamsRun) write(t *testing.T, part int) {
	t.Helper()
	var records []*kgo.Record
	add := func(topic string, at time.Duration, key, value string) {
		rec := kgo.KeyStringRecord(key, value)
		if value == "" {
			rec.Value = nil
		}
		rec.Topic, rec.Timestamp = r.name+"-"+topic, r.base.Add(at)
		records = append(records, rec)
	}
	if part == 0 {
		for i := range 4 {
			add("users", time.Duration(i)*time.Second, fmt.Sprint("user", i), fmt.Sprint("User ", i))
			add("shops", time.Duration(i)*time.Second, fmt.Sprint("shop", i), fmt.Sprint("Shop ", i))
		}
		add("users", 5*time.Second, "user1", "User 1, moved")
		add("users", 6*time.Second, "user2", "")
		add("shops", 7*time.Second, "user0", "a shop that is called like a user")
	}
	const orders = 40
	for i := part * orders; i < (part+1)*orders; i++ {
		at := time.Minute + time.Duration(i*7)*time.Second
		if i%9 == 4 { // late, and now and then too late for its window
			at -= time.Duration(i*5) * time.Second
		}
		key := fmt.Sprint("key", i%6)
		if i%3 == 0 {
			key = fmt.Sprint("once", i)
		}
		add("orders", at, key, fmt.Sprintf("user%d;shop%d;%d", i%5, i%4, i))
		if i%2 == 0 {
			add("payments", at+time.Duration(i%4*20)*time.Second, key, fmt.Sprint("paid ", i))
		}
	}
	end := time.Minute + time.Duration((part+1)*orders*7)*time.Second
	add("orders", end+10*time.Minute*time.Duration(part), "key0", "user0;shop0;0") // the last one closes all windows
	add("payments", end+10*time.Minute*time.Duration(part), "nobody", "paid 0")
	if err := r.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// awaitIdle waits until the application has committed the ends of all topics that it reads. Its offsets are asked for before the
// ends: what it wrote for an input that is done is then within the ends, though its transaction may not be marked as committed yet.
func (r *streamsRun) awaitIdle(t *testing.T, p *process) {
	t.Helper()
	err := poll.Until(t.Context(), connectWithin, r.name+" has read everything", func() (bool, error) {
		select {
		case <-p.done:
			t.Fatal("the application has ended")
		default:
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		topics, err := r.topics(ctx)
		if err != nil {
			return false, err
		}
		committed, err := r.admin.FetchOffsets(ctx, r.name)
		if err != nil {
			return false, err
		}
		ends, err := r.admin.ListEndOffsets(ctx, topics...)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return false, err
		}
		var behind []string
		ends.Each(func(end kadm.ListedOffset) {
			at, there := committed.Lookup(end.Topic, end.Partition)
			if end.Offset > 0 && (!there || at.At < end.Offset) {
				behind = append(behind, fmt.Sprintf("%s at %d of %d", end.Topic, at.At, end.Offset))
			}
		})
		return len(behind) == 0, fmt.Errorf("behind: %v", behind)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// topics are those that the application reads: its inputs and what it made to pass records on.
func (r *streamsRun) topics(ctx context.Context) ([]string, error) {
	all, err := r.admin.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	var topics []string
	for _, name := range all.Names() {
		if rest, ok := strings.CutPrefix(name, r.name+"-"); ok && (slices.Contains(matrixInputs, rest) || strings.HasSuffix(rest, "-repartition") || strings.HasSuffix(rest, "-topic")) {
			topics = append(topics, name)
		}
	}
	return topics, nil
}

// read gives what came out of one kind of operation, sorted: unjoined records of an outer join have no order among the others.
func (r *streamsRun) read(t *testing.T, kind string) []string {
	t.Helper()
	var out []string
	for _, rec := range committedRecords(t, r.bootstrap, r.name+"-out-"+kind) {
		out = append(out, fmt.Sprintf("%s=%s at %v", rec.Key, rec.Value, rec.Timestamp.Sub(r.base)))
	}
	slices.Sort(out)
	return out
}

// resetAgain resets the application here and on the reference, compares what the tool prints, and runs it again from the start.
func (r *streamsRun) resetAgain(t *testing.T, b *target.Broker, reference *streamsRun) {
	t.Helper()
	inputs := []string{}
	for _, kind := range matrixInputs {
		inputs = append(inputs, r.name+"-"+kind)
	}
	reset := func(b *target.Broker, more ...string) []string {
		args := append([]string{"--bootstrap-server", b.Addr, "--application-id", r.name}, more...)
		out := newNormalizer(b, "/nowhere").transcript(tool(t, javatool.Command{Tool: "kafka-streams-application-reset", Args: args}))
		for i, line := range out { // topics in the order of a Java set
			if before, list, ok := strings.Cut(line, "["); ok {
				topics := strings.Split(strings.TrimSuffix(list, "]"), ", ")
				slices.Sort(topics)
				out[i] = before + "[" + strings.Join(topics, ", ") + "]"
			}
		}
		slices.Sort(out[1:])
		return out
	}
	refs := examReference(t)
	for _, run := range []*streamsRun{reference, r} { // a stopped application's member goes when its session ends
		err := poll.Until(t.Context(), connectWithin, "the group is empty", func() (bool, error) {
			described, err := run.admin.DescribeGroups(t.Context(), run.name)
			if err != nil {
				return false, err
			}
			return described[run.name].State == "Empty", fmt.Errorf("it is %+v", described[run.name])
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, more := range [][]string{
		{"--input-topics", strings.Join(inputs, ","), "--dry-run"},
		{"--input-topics", "not-there", "--dry-run"},
		{"--input-topics", strings.Join(inputs, ","), "--to-earliest"},
		{"--input-topics", strings.Join(inputs, ",")},
	} {
		w, g := reset(refs, more...), reset(b, more...)
		t.Logf("Kafka 4.4 prints for %v:\n%s", more, strings.Join(w, "\n"))
		if diff := compareTranscripts(w, g); diff != "" {
			t.Errorf("kafka-streams-application-reset %v (-Kafka 4.4 +%s)\n%s", more, b.Kind, diff)
		}
	}
	left, err := r.topics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != len(matrixInputs) {
		t.Errorf("after the reset there are %v, want the inputs only", left)
	}
	if !long() {
		return
	}
	for _, run := range []*streamsRun{reference, r} {
		p := run.start(t)
		run.awaitIdle(t, p)
		run.stop(t, p)
	}
	for _, kind := range matrixOutputs {
		if diff := cmp.Diff(reference.read(t, kind), r.read(t, kind)); diff != "" {
			t.Errorf("%s after the reset (-Kafka 4.4 +%s)\n%.3000s", kind, b.Kind, diff)
		}
	}
}
