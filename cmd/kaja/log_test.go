package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
)

// writePartition makes the files of one partition with a plain batch, an aborted transaction and a committed offset.
func writePartition(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "__consumer_offsets-3")
	now := time.UnixMilli(1_700_000_000_000)
	cfg, codecs := log.DefaultConfig(), compress.New()
	l, _, err := log.Open(context.Background(), log.Options{FS: vfs.OS{}, Dir: filepath.ToSlash(dir), TP: wire.TopicPartition{Topic: "__consumer_offsets", Partition: 3},
		TopicID: wire.UUID{15: 1}, Config: cfg, Wall: func() time.Time { return now }, Logger: slog.New(slog.DiscardHandler), Codecs: codecs})
	if err != nil {
		t.Fatal(err)
	}
	add := func(raw []byte) {
		t.Helper()
		v, err := log.Validate(raw, log.ValidateOptions{Config: cfg, Now: now, Coordinator: true, Codecs: codecs})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(v, 4); err != nil {
			t.Fatal(err)
		}
	}
	key := kmsg.OffsetCommitKey{Version: 1, Group: "g", Topic: "t", Partition: 7}
	value := kmsg.OffsetCommitValue{Version: 3, Offset: 42, LeaderEpoch: 2, CommitTimestamp: now.UnixMilli()}
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: -1, Codec: compress.Gzip, Level: -1})
	b.Add(batch.NewRecord{Timestamp: now.UnixMilli(), Key: key.AppendTo(nil), Value: value.AppendTo(nil)})
	b.Add(batch.NewRecord{Timestamp: now.UnixMilli(), Key: key.AppendTo(nil)})
	b.Add(batch.NewRecord{Timestamp: now.UnixMilli(), Key: []byte("other"), Value: []byte("v"), Headers: []batch.Header{{Key: "h", Value: []byte("x")}}})
	raw, _, err := b.Build(nil, codecs)
	if err != nil {
		t.Fatal(err)
	}
	add(raw)
	b = batch.NewBuilder(batch.Spec{LeaderEpoch: -1, Transactional: true, Producer: &batch.Producer{ID: 9, Epoch: 1}})
	b.Add(batch.NewRecord{Timestamp: now.UnixMilli(), Value: []byte("in a transaction")})
	if raw, _, err = b.Build(nil, codecs); err != nil {
		t.Fatal(err)
	}
	add(raw)
	marker, _ := batch.Marker{ProducerID: 9, ProducerEpoch: 1, EndTxn: batch.EndTxn{CoordinatorEpoch: 5}, Timestamp: now.UnixMilli()}.Append(nil)
	add(marker)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func runKaja(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs, signals: make(chan os.Signal)}
	code = a.run(args)
	return code, out.String(), errs.String()
}

func TestLogDump(t *testing.T) {
	dir := writePartition(t)
	code, out, errs := runKaja("log", "dump", dir)
	for _, want := range []string{
		"0 to 2                        0 ", " gzip   data              3 ",
		`offset of group "g" for t-7 is 42, epoch 2, metadata "", committed 2023-11-14T22:13:20.000Z`,
		`offset of group "g" for t-7 is removed`, `key "other"  value "v"  headers h="x"`,
		"id 9 epoch 1 sequence 0 to 0", "abort marker, coordinator epoch 5",
		"producer 9            aborted 3 to 4  last stable offset 5",
		"epoch 4        from offset 0", "sequences 0 to 0  offsets 3 to 3", "topic_id: AAAAAAAAAAAAAAAAAAAAAQ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("output lacks %q", want)
		}
	}
	if code != exitOK || errs != "" {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestLogDumpJSON(t *testing.T) {
	dir := writePartition(t)
	code, out, _ := runKaja("log", "dump", "--json", "--offset", "3", filepath.Join(dir, "00000000000000000000.log"))
	var got []string
	for line := range strings.Lines(out) {
		var x struct {
			Type       string
			Offset     int64
			BaseOffset int64
			Decoded    struct{ Control string }
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		got = append(got, x.Type+" "+x.Decoded.Control)
	}
	if want := "batch |record |batch |record abort"; code != exitOK || strings.Join(got, "|") != want {
		t.Errorf("exit code %d, %q, want %q", code, strings.Join(got, "|"), want)
	}
}

func TestLogVerify(t *testing.T) {
	dir := writePartition(t)
	if code, out, errs := runKaja("log", "verify", filepath.Dir(dir)); code != exitOK || !strings.Contains(out, "1 partitions, ") || !strings.Contains(out, " 0 damaged") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	name := filepath.Join(dir, "00000000000000000000.log")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[100] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, _ := runKaja("log", "verify", dir)
	if code != exitDamaged || !strings.Contains(out, "DAMAGED  00000000000000000000.log at byte 0: checksum mismatch") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	code, out, _ = runKaja("log", "verify", "--json", dir)
	var r verified
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDamaged || len(r.Problems) == 0 || r.Problems[0].File != filepath.Base(name) {
		t.Errorf("exit code %d, %+v, %v", code, r, err)
	}
	if code, _, errs := runKaja("log", "verify", filepath.Join(dir, "no")); code != exitFatal || !strings.Contains(errs, "give a file, the directory of a partition") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	if code, _, _ := runKaja("log", "dump", name); code != exitDamaged {
		t.Errorf("dump of a damaged file: exit code %d", code)
	}
}
