package log

import (
	"bytes"
	"encoding/hex"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire/batch"
)

// golden reads what Kafka wrote: file names and contents.
func golden(t *testing.T) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile("testdata/kafka-4.4-files.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = data
	}
	return files
}

func goldenBench(t *testing.T, fs vfs.FS, want map[string][]byte) *bench {
	t.Helper()
	id, err := decodeMetadata(metadataFile, want[metadataFile])
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, fs: fs, dir: "/data/t-0", config: *DefaultConfig(), now: epochZero}
	b.config.SegmentBytes, b.config.IndexIntervalBytes = 700, 100
	b.codecs = newBench(t, nil, nil).codecs
	o := b.options(true, 27)
	o.TopicID = id
	l, rec, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	b.log, b.rec = l, rec
	return b
}

// The same batches leave the same bytes in every file.
func TestFilesEqualKafkas(t *testing.T) {
	want := golden(t)
	mem := memfs.New(nil)
	b := goldenBench(t, mem, want)
	names := make([]string, 0, len(want))
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for rest := want[name]; strings.HasSuffix(name, suffixLog) && len(rest) > 0; {
			x, r, err := batch.Next(rest)
			b.must(err)
			x, rest = bytes.Clone(x), r
			x.SetBaseOffset(0)
			x.SetLeaderEpoch(-1)
			_, err = b.log.AppendAsLeader(b.validate(x), 0)
			b.must(err)
		}
	}
	b.must(b.log.Close())
	left, err := mem.List(b.dir)
	b.must(err)
	left = slices.DeleteFunc(left, func(n string) bool { return strings.HasSuffix(n, suffixWindow) })
	if !slices.Equal(left, names) {
		t.Fatalf("files %q, want %q", left, names)
	}
	for _, name := range names {
		got, err := vfs.ReadFile(mem, b.dir+"/"+name)
		b.must(err)
		if !bytes.Equal(got, want[name]) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, want[name])
		}
	}
}

// Kafka's directory opens as it is, and goes on.
func TestOpensKafkasFiles(t *testing.T) {
	want := golden(t)
	mem := memfs.New(nil)
	if err := mem.MkdirAll("/data/t-0"); err != nil {
		t.Fatal(err)
	}
	for name, data := range want {
		if err := vfs.WriteAtomic(mem, "/data/t-0/"+name, data); err != nil {
			t.Fatal(err)
		}
	}
	b := goldenBench(t, mem, want)
	if b.rec.BytesRead != 0 || b.rec.IndexesRebuilt != 0 || b.rec.ProducersReplayed || b.log.EndOffset() != 27 {
		t.Fatalf("end %d, %+v", b.log.EndOffset(), b.rec)
	}
	a := b.append(spec{n: 2, producer: &batch.Producer{ID: 4000, Sequence: 14}})
	if a.First != 27 {
		t.Fatalf("append went to %d", a.First)
	}
}

// What Kafka wrote is whole.
func TestVerifiesKafkasFiles(t *testing.T) {
	mem := memfs.New(nil)
	if err := mem.MkdirAll("/data/t-0"); err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for name, data := range golden(t) {
		if err := vfs.WriteAtomic(mem, "/data/t-0/"+name, data); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, suffixLog) {
			size += int64(len(data))
		}
	}
	b := newBench(t, nil, nil)
	b.fs, b.dir = mem, "/data/t-0"
	if r := b.verify(t); len(r.Problems)+len(r.Notes) != 0 || r.End != 27 || r.Bytes != size || r.IndexEntries == 0 {
		t.Fatalf("%+v", r)
	}
}
