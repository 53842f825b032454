package compattests_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// The exam runs the same command lines of Kafka's own tools against the broker under test and against a real Kafka 4.4, and
// compares exit code, standard output and standard error. Normalised are ids, times, ports, directories and the order of
// Java sets in messages that list valid values. Nothing else.

// step is one command line of the exam. In its arguments and input, $B stands for the broker's address and $DIR for a
// directory of the test.
type step struct {
	tool    string
	args    string        // split at blanks; a blank inside an argument is written as ␣
	stdin   string        // of the tool
	repeat  bool          // a describe straight after an alter may show the old state: look again until both agree
	timeout time.Duration // 0: one minute
}

func (s step) command(b *target.Broker, dir string) javatool.Command {
	replace := strings.NewReplacer("$B", b.Addr, "$DIR", dir, "␣", " ")
	c := javatool.Command{Tool: s.tool, Stdin: replace.Replace(s.stdin), Timeout: s.timeout}
	for _, arg := range strings.Fields(s.args) {
		c.Args = append(c.Args, replace.Replace(arg))
	}
	return c
}

// normalizer replaces what legitimately differs between two brokers.
type normalizer struct {
	rules []rule
}

type rule struct {
	pattern *regexp.Regexp
	with    string
}

var (
	uuidPattern    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	topicIDPattern = regexp.MustCompile(`(TopicId: |topic id |topicId=)[A-Za-z0-9_-]{22}`)
	timePattern    = regexp.MustCompile(`(CreateTime:|LogAppendTime:|timestamp )\d{13}`)
	clockPattern   = regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d{3}`)
	setPattern     = regexp.MustCompile(`(valid [a-z ]*(?:are|is|values?)[^\[{(]*[\[{(])([^\]})]*)([\]})])`)
	drawnGroup     = regexp.MustCompile(`(perf-consumer-)\d+(\)?) *`) // by the tool itself, and padded
	clusterPattern = regexp.MustCompile(`(?i)(cluster id: )[A-Za-z0-9_-]{22}`)
)

func newNormalizer(b *target.Broker, dir string) normalizer {
	literal := func(s, with string) rule { return rule{regexp.MustCompile(regexp.QuoteMeta(s)), with} }
	return normalizer{rules: []rule{
		literal(b.DataDir(), "DATADIR"),
		literal(dir, "DIR"),
		literal(b.Addr, "127.0.0.1:PORT_"),
		{regexp.MustCompile(`\b` + b.Port() + `\b`), "PORT_"},
		{uuidPattern, "UUID"},
		{topicIDPattern, "${1}ID"},
		{timePattern, "${1}TIME"},
		{clockPattern, "CLOCK"},
		{clusterPattern, "${1}ID"},
		{drawnGroup, "${1}N${2}"},
	}}
}

func (n normalizer) text(s string) string {
	for _, r := range n.rules {
		s = r.pattern.ReplaceAllString(s, r.with)
	}
	return setPattern.ReplaceAllStringFunc(s, func(m string) string {
		part := setPattern.FindStringSubmatch(m)
		items := strings.Split(part[2], ", ")
		slices.Sort(items)
		return part[1] + strings.Join(items, ", ") + part[3]
	})
}

// transcript renders a result for comparison.
func (n normalizer) transcript(r javatool.Result) []string {
	out := []string{fmt.Sprintf("exit %d", r.Exit)}
	if r.Timeout {
		out = []string{"did not end in time"}
	}
	for _, line := range lines(n.text(r.Out)) {
		out = append(out, "out: "+line)
	}
	for _, line := range lines(n.text(r.Err)) {
		if !strings.HasPrefix(line, "\tat ") { // a stack frame tells about the tool, not about the broker
			out = append(out, "err: "+line)
		}
	}
	return out
}

// compareTranscripts returns "" if two transcripts say the same.
func compareTranscripts(reference, got []string) string { return cmp.Diff(reference, got) }

// The exam can fail: a changed, missing or additional line is caught, and what is normalised is only what should be.
func TestExamCatchesChanges(t *testing.T) {
	b, err := target.New(target.Options{Kind: target.Kaja, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n := newNormalizer(b, "/tmp/x")
	original := javatool.Result{
		Out: "Topic: a\tTopicId: AAAAAAAAAAAAAAAAAAAAAA\tPartitionCount: 2\nGROUP g 127.0.0.1:" + b.Port() + " (1)\n",
		Err: "Error: valid states are [Dead, Empty]\n\tat some.frame\n",
	}
	reference := n.transcript(original)
	for _, c := range []struct {
		name   string
		change func(r *javatool.Result)
		same   bool
	}{
		{"nothing", func(*javatool.Result) {}, true},
		{"another topic id", func(r *javatool.Result) {
			r.Out = strings.Replace(r.Out, "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB", 1)
		}, true},
		{"order of a set", func(r *javatool.Result) { r.Err = strings.Replace(r.Err, "Dead, Empty", "Empty, Dead", 1) }, true},
		{"a number", func(r *javatool.Result) { r.Out = strings.Replace(r.Out, "PartitionCount: 2", "PartitionCount: 3", 1) }, false},
		{"a blank more", func(r *javatool.Result) { r.Out = strings.Replace(r.Out, "GROUP g", "GROUP  g", 1) }, false},
		{"broker id", func(r *javatool.Result) { r.Out = strings.Replace(r.Out, "(1)", "(0)", 1) }, false},
		{"a line less", func(r *javatool.Result) { r.Out = strings.SplitAfter(r.Out, "\n")[0] }, false},
		{"a line more", func(r *javatool.Result) { r.Out += "more\n" }, false},
		{"a member of a set", func(r *javatool.Result) { r.Err = strings.Replace(r.Err, "Dead", "Deaf", 1) }, false},
		{"a topic id cut short", func(r *javatool.Result) { r.Out = strings.Replace(r.Out, "AAAAAAAAAAAAAAAAAAAAAA", "AAAA", 1) }, false},
		{"exit code", func(r *javatool.Result) { r.Exit = 1 }, false},
		{"other stream", func(r *javatool.Result) { r.Out, r.Err = r.Err, r.Out }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := original
			c.change(&r)
			if same := compareTranscripts(reference, n.transcript(r)) == ""; same != c.same {
				t.Errorf("judged the same: %v, want %v", same, c.same)
			}
		})
	}
}

// examine runs steps in order on the broker under test and on Kafka.
func examine(t *testing.T, steps []step) {
	t.Helper()
	need(t, "java")
	examineOn(t, sharedBroker(t), examReference(t), steps)
}

func examineOn(t *testing.T, got, reference *target.Broker, steps []step) {
	t.Helper()
	dirs := map[*target.Broker]string{got: t.TempDir(), reference: t.TempDir()}
	run := func(s step, b *target.Broker) []string {
		return newNormalizer(b, dirs[b]).transcript(tool(t, s.command(b, dirs[b])))
	}
	for i, s := range steps {
		name := fmt.Sprintf("%02d %s %s", i+1, s.tool, s.args)
		t.Run(name, func(t *testing.T) {
			want := run(s, reference)
			if os.Getenv("KAJA_COMPAT_SHOW") != "" {
				t.Logf("Kafka 4.4 prints:\n%s", strings.Join(want, "\n"))
			}
			diff := compareTranscripts(want, run(s, got))
			if diff != "" && s.repeat {
				err := poll.Until(t.Context(), 20*time.Second, "both print the same", func() (bool, error) {
					diff = compareTranscripts(run(s, reference), run(s, got))
					return diff == "", nil
				})
				if err == nil {
					return
				}
			}
			if diff != "" {
				t.Errorf("%s %s\n(-Kafka 4.4 +%s)\n%.6000s", s.tool, s.args, got.Kind, diff)
			}
		})
	}
}

// examReference is a Kafka 4.4 that nothing but the exam uses, so that an exam of Kafka itself compares two.
func examReference(t *testing.T) *target.Broker {
	t.Helper()
	return sharedAs(t, target.Kafka, "exam-reference")
}
