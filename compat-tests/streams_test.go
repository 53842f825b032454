package compattests_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// words are what the lines of TestStreamsKilled are made of.
var words = strings.Fields("jackdaw rook crow raven magpie jay nutcracker chough") //nolint:gochecknoglobals // a table

// A word count of Kafka Streams with exactly_once_v2 is killed at random moments and started again. Every word is counted
// without a gap and without a repetition, and the sums are those of the input (session timeout 6 s).
func TestStreamsKilled(t *testing.T) {
	set := need(t, "java")
	b := ownBroker(t, map[string]string{"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3",
		"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
	kills := 5
	if long() {
		kills = 50
	}
	makeTopic(t, b, "lines", 2, nil)
	makeTopic(t, b, "counts", 2, nil)
	dir := t.TempDir()
	args := []string{"java", "-Xmx160m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(set.Jars(), "*"), "java/WordCount.java"}
	start := func() *process {
		return startFollowing(t, nil, append(slices.Clone(args), b.Addr, "lines", "counts", "word-count", dir)...)
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	app := start()
	ctx, cancel := context.WithCancel(t.Context())
	lines := make(chan map[string]int, 1)
	go func() { lines <- writeLines(ctx, t, b) }()
	out := newClient(t, b, kgo.ConsumeTopics("counts"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	counted, total := map[string]int{}, 0
	read := func(wait time.Duration) {
		ctx, cancel := withTimeout(t, wait)
		defer cancel()
		out.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			word := string(r.Key)
			n, err := strconv.Atoi(string(r.Value))
			if err != nil || n != counted[word]+1 {
				t.Errorf("%s is counted %q after %d", word, r.Value, counted[word])
			}
			counted[word] = n
			total++
		})
	}
	for kill := range kills {
		for before, until := total, time.Now().Add(90*time.Second); total < before+20; read(200 * time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("no progress before kill %d: %d words are counted", kill, total)
			}
		}
		read(time.Duration(rng.IntN(1000)) * time.Millisecond)
		_ = app.cmd.Process.Kill()
		<-app.done
		app = start()
	}
	for before, until := total, time.Now().Add(90*time.Second); total < before+20 && time.Now().Before(until); {
		read(200 * time.Millisecond)
	}
	cancel()
	want := <-lines
	sum := func(m map[string]int) (n int) {
		for _, c := range m {
			n += c
		}
		return n
	}
	for until := time.Now().Add(90 * time.Second); total < sum(want) && time.Now().Before(until); {
		read(200 * time.Millisecond)
	}
	read(time.Second) // nothing may come after the last one
	for _, word := range words {
		if counted[word] != want[word] {
			t.Errorf("%s is counted %d times, and was written %d times", word, counted[word], want[word])
		}
	}
	t.Logf("%d kills, %d words counted", kills, total)
	if t.Failed() {
		t.Logf("the application printed:\n%.2000s\n%.2000s", app.out.String(), app.err.String())
	}
}

// writeLines writes lines until ctx ends, and gives how often each word is in them.
func writeLines(ctx context.Context, t *testing.T, b *target.Broker) map[string]int {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr), kgo.DefaultProduceTopic("lines"))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer client.Close()
	want := map[string]int{}
	for i := 0; ctx.Err() == nil; i++ {
		var line []string
		for j := range 5 {
			word := words[(i*7+j*j*3+i/5)%len(words)]
			line = append(line, word)
			want[word]++
		}
		r := kgo.KeyStringRecord(fmt.Sprint(i), strings.Join(line, " "))
		if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Error(err)
		}
		tick := time.NewTimer(20 * time.Millisecond)
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
		}
	}
	return want
}
