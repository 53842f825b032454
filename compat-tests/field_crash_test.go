package compattests_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
)

// b17Partitions is how many partitions the load of B17 goes to.
const b17Partitions = 3

// B17: after SIGKILL in the middle of a load, and with damage on top that a power loss could do, the broker starts without
// help. What is served afterwards is exactly the batches that are whole on the disk, read here from the files; each
// acknowledged record is there once and in order, save those whose bytes the damage took.
func TestFieldB17KillAndDamage(t *testing.T) {
	b := ownBroker(t, map[string]string{"log.segment.bytes": "1048576"})
	rng := rand.New(rand.NewPCG(17, 4))
	rounds := 6
	switch {
	case long():
		rounds = 50
	case b.Kind == target.Kafka:
		rounds = 3 // its start takes seconds
	}
	var acked [][]string
	topic, torn, kinds := "", 0, map[damage]bool{}
	for round := range rounds {
		if round%5 == 0 { // all is read again after each kill, so it must not grow for ever
			topic, acked = fmt.Sprintf("b17-%d", round/5), make([][]string, b17Partitions)
			makeTopic(t, b, topic, b17Partitions, nil)
		}
		load := startLoad(t, b, topic, b17Partitions, fmt.Sprintf("r%d-", round), kgo.ProducerBatchCompression(kgo.NoCompression()))
		load.await(t, 500+rng.IntN(2000))
		<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond) // the kill is to hit any moment
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		for p, values := range load.stop() {
			acked[p] = append(acked[p], values...)
		}
		var whole [b17Partitions][]string
		for p := range whole {
			dir := filepath.Join(b.DataDir(), fmt.Sprintf("%s-%d", topic, p))
			before := onDisk(t, dir)
			kind := damage((p + round) % int(damages))
			kind.do(t, dir, rng)
			kinds[kind] = true
			whole[p] = onDisk(t, dir)
			if len(whole[p]) > len(before) || !slices.Equal(whole[p], before[:len(whole[p])]) {
				t.Fatalf("round %d: damage %d to %s-%d did more than cut", round, kind, topic, p)
			}
			gone := map[string]bool{}
			for _, v := range before[len(whole[p]):] {
				gone[v] = true
			}
			torn += len(gone)
			acked[p] = slices.DeleteFunc(acked[p], func(v string) bool { return gone[v] })
		}
		damageDirectory(t, b.DataDir(), round)
		if err := b.Start(t.Context()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		awaitLeaders(t, b, topic, b17Partitions)
		for p, want := range whole {
			got := readPartition(t, b, topic, int32(p))
			if !slices.Equal(want, got) {
				same := 0
				for same < min(len(want), len(got)) && want[same] == got[same] {
					same++
				}
				t.Fatalf("round %d: %s-%d serves %d records, %d are whole on the disk; they differ from number %d on", round, topic, p, len(got), len(want), same)
			}
		}
		checkAcked(t, b, topic, acked)
	}
	t.Logf("%d kills, damage of %d kinds took %d records", rounds, len(kinds), torn)
	if torn == 0 {
		t.Error("no damage hit a record: the test shows nothing")
	}
}

// onDisk reads the values of the whole batches of a partition's directory.
func onDisk(t *testing.T, dir string) []string {
	t.Helper()
	var values []string
	for _, path := range segments(t, dir) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range raw.Whole(data) {
			v, err := h.Values()
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			values = append(values, v...)
		}
	}
	return values
}

func segments(t *testing.T, dir string) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("segments of %s: %v, %v", dir, logs, err)
	}
	slices.Sort(logs)
	return logs
}

// damage is what is done to a stopped broker's partition.
type damage int

const (
	cutTail      damage = iota // 1 to 300 bytes of the last segment are gone
	zeroTail                   // 1 to 300 bytes at its end read as zeros
	emptyIndexes               // each index and checkpoint is there, with nothing in it
	tornWrite                  // a batch that was not written to its end follows
	grownFile                  // the file was grown, and nothing written there
	damages
)

func (d damage) do(t *testing.T, dir string, rng *rand.Rand) {
	t.Helper()
	logs := segments(t, dir)
	last := logs[len(logs)-1]
	switch d {
	case cutTail, zeroTail:
		data, err := os.ReadFile(last)
		if err != nil {
			t.Fatal(err)
		}
		n := min(1+rng.IntN(300), len(data))
		if d == cutTail {
			data = data[:len(data)-n]
		} else {
			clear(data[len(data)-n:])
		}
		if err := os.WriteFile(last, data, 0o644); err != nil {
			t.Fatal(err)
		}
	case emptyIndexes:
		emptyFiles(t, dir, "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*checkpoint")
	case tornWrite:
		torn := raw.NewBatch(raw.Numbered("torn", 0, 20)...).Bytes()
		appendFile(t, last, torn[:1+rng.IntN(len(torn)-1)])
	case grownFile:
		appendFile(t, last, make([]byte, 1+rng.IntN(300)))
	}
	halfWrite(t, filepath.Join(dir, "leader-epoch-checkpoint.tmp"))
	halfWrite(t, strings.TrimSuffix(last, ".log")+".snapshot.tmp")
}

// damageDirectory leaves half-written files beside the checkpoints of all partitions, and each second time empties them.
func damageDirectory(t *testing.T, dir string, round int) {
	t.Helper()
	halfWrite(t, filepath.Join(dir, "meta.properties.tmp"))
	for _, name := range []string{"recovery-point", "replication", "log-start", "cleaner"} {
		path := filepath.Join(dir, name+"-offset-checkpoint")
		halfWrite(t, path+".tmp")
		if round%2 == 1 {
			writeFile(t, path, "")
		}
	}
}

func halfWrite(t *testing.T, path string) {
	t.Helper()
	writeFile(t, path, "0\n1")
}

func emptyFiles(t *testing.T, dir string, patterns ...string) {
	t.Helper()
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func appendFile(t *testing.T, path string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
