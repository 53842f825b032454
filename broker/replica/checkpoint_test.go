package replica

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

func TestCheckpointText(t *testing.T) {
	in := map[wire.TopicPartition]wire.Offset{{Topic: "b", Partition: 10}: 7, {Topic: "b", Partition: 9}: 0, {Topic: "a", Partition: 0}: 1 << 40}
	want := "0\n3\na 0 1099511627776\nb 9 0\nb 10 7\n"
	if got := string(encodeCheckpoint(in)); got != want {
		t.Fatalf("encoded %q, want %q", got, want)
	}
	out, err := decodeCheckpoint([]byte(want))
	if err != nil || !maps.Equal(in, out) {
		t.Fatalf("decoded %v, %v", out, err)
	}
	for _, bad := range []string{"", "0\n", "1\n0\n", "0\n1\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na x 1\n", "0\n1\na 0 -1\n", "0\n1\na 0 1", "0\n0\n\n"} {
		if out, err := decodeCheckpoint([]byte(bad)); err == nil {
			t.Errorf("%q decoded to %v", bad, out)
		}
	}
}

// A power loss can leave a file's name without its content. Kafka reads an empty checkpoint as one without entries, and so
// does kaja: what is not known is recovered from the log (field case B17).
func TestEmptyCheckpointIsNoCheckpoint(t *testing.T) {
	fs := memfs.New(nil)
	if err := vfs.WriteAtomic(fs, "/empty", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/empty", "/missing"} {
		if got, err := readCheckpoint(fs, name); err != nil || len(got) != 0 {
			t.Errorf("%s: %v, %v; want no entries", name, got, err)
		}
	}
}

func TestDirNames(t *testing.T) {
	hex := strings.Repeat("ab", 16)
	for _, tt := range []struct {
		name string
		tp   wire.TopicPartition
		kind string
		ok   bool
	}{
		{"t-0", wire.TopicPartition{Topic: "t"}, "", true},
		{"a-b-12", wire.TopicPartition{Topic: "a-b", Partition: 12}, "", true},
		{"t-0." + hex + "-delete", wire.TopicPartition{Topic: "t"}, "delete", true},
		{"t-3." + hex + "-stray", wire.TopicPartition{Topic: "t", Partition: 3}, "stray", true},
		{"t-3." + hex + "-future", wire.TopicPartition{Topic: "t", Partition: 3}, "future", true},
		{"raft", wire.TopicPartition{}, "", false},
		{"t-x", wire.TopicPartition{}, "", false},
		{"t-01", wire.TopicPartition{}, "", false},
		{"-1", wire.TopicPartition{}, "", false},
		{"meta.properties", wire.TopicPartition{}, "", false},
	} {
		tp, kind, ok := parseDirName(tt.name)
		if ok != tt.ok || (ok && (tp != tt.tp || kind != tt.kind)) {
			t.Errorf("%s: %v %q %v", tt.name, tp, kind, ok)
		}
	}
	long := wire.TopicPartition{Topic: strings.Repeat("x", 249), Partition: 1234}
	name := deletedDirName(long, wire.UUID{1})
	if len(name) != 255 {
		t.Fatalf("%d bytes: %s", len(name), name)
	}
	if tp, kind, ok := parseDirName(name); !ok || kind != "delete" || tp.Partition != 1234 {
		t.Fatalf("%v %q %v", tp, kind, ok)
	}
}

func TestPreviousBrokerEpoch(t *testing.T) {
	fs := memfs.New(time.Now)
	dirs := []Dir{{Path: "a"}, {Path: "b"}}
	for _, d := range dirs {
		if err := fs.MkdirAll(d.Path); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want wire.BrokerEpoch) {
		t.Helper()
		if got := PreviousBrokerEpoch(fs, dirs); got != want {
			t.Fatalf("epoch %d, want %d", got, want)
		}
	}
	check(wire.NoBrokerEpoch)
	write := func(dir string, epoch wire.BrokerEpoch) {
		t.Helper()
		if err := writeCleanShutdown(fs, dir, epoch); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 7)
	check(wire.NoBrokerEpoch)
	write("b", 7)
	check(7)
	write("b", 8)
	check(wire.NoBrokerEpoch)
	if err := removeCleanShutdown(fs, "a"); err != nil {
		t.Fatal(err)
	}
	check(wire.NoBrokerEpoch)
}
