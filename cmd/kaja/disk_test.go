//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/internal/loopdisk"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// diskClient is a client of one node whose produces tell the broker's first answer.
type diskClient struct {
	*kgo.Client
	t   *testing.T
	adm *kadm.Client
}

func diskClientOf(t *testing.T, n *running) *diskClient {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(n.address), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(),
		kgo.RecordRetries(0), kgo.RequestRetries(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &diskClient{c, t, kadm.NewClient(c)}
}

func (c *diskClient) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

func (c *diskClient) produce(topic string, partition int32, size int) error {
	return c.ProduceSync(c.ctx(), &kgo.Record{Topic: topic, Partition: partition, Value: bytes.Repeat([]byte("v"), size)}).FirstErr()
}

// fetch gives how many records of a partition can be read from its start, asking for want.
func (c *diskClient) fetch(topic string, partition int32, want int) int {
	c.t.Helper()
	c.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}})
	defer c.RemoveConsumePartitions(map[string][]int32{topic: {partition}})
	got := 0
	for ctx := c.ctx(); got < want; {
		f := c.PollFetches(ctx)
		if err := f.Err0(); err != nil {
			c.t.Fatalf("after %d of %d records: %v", got, want, err)
		}
		for _, e := range f.Errors() {
			c.t.Fatalf("after %d of %d records: %v", got, want, e.Err)
		}
		got += f.NumRecords()
	}
	return got
}

func (c *diskClient) commit(at int64) error {
	var offsets kadm.Offsets
	offsets.AddOffset("t", 0, at, -1)
	return c.adm.CommitAllOffsets(c.ctx(), "g", offsets)
}

func (c *diskClient) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *diskClient) create(topic string, partitions int32) {
	c.t.Helper()
	_, err := c.adm.CreateTopic(c.ctx(), partitions, 1, nil, topic)
	c.must(err)
}

// D7: a disk that is really full. Writes are answered KAFKA_STORAGE_ERROR; reads, commits, creating and deleting topics
// and deleting records go on; writing goes on by itself when space is back, and everything that was acknowledged is there.
func TestProcessOnAFullDisk(t *testing.T) {
	disk := loopdisk.InMemory(t, 48<<20)
	n := start(t, t.TempDir(), "--set", "log.dirs="+filepath.Join(disk.Mount, "data"), "--set", "offsets.topic.num.partitions=1",
		"--set", "log.segment.delete.delay.ms=500")
	c := diskClientOf(t, n)
	c.create("t", 1)
	c.create("ballast", 1)
	c.must(c.produce("t", 0, 1000))
	c.must(c.commit(1))
	for i := range 24 {
		c.must(c.produce("ballast", 0, 900_000+i))
	}
	acked := 1
	var err error
	for err == nil && acked < 200 {
		if err = c.produce("t", 0, 500_000); err == nil {
			acked++
		}
	}
	if !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("after %d records: %v, want KAFKA_STORAGE_ERROR", acked, err)
	}
	for range 20 {
		if err := c.produce("t", 0, 500_000); !errors.Is(err, kerr.KafkaStorageError) {
			t.Fatalf("on the full disk: %v", err)
		}
	}
	if got := c.fetch("t", 0, acked); got != acked {
		t.Fatalf("%d records can be read, %d were acknowledged", got, acked)
	}
	for i := range 50 {
		c.must(c.commit(int64(i)))
	}
	c.create("another", 1)
	_, err = c.adm.DeleteTopics(c.ctx(), "another")
	c.must(err)
	low, err := c.adm.DeleteRecords(c.ctx(), kadm.Offsets{"ballast": {0: {Topic: "ballast", At: 3}}})
	c.must(errors.Join(err, low.Error()))
	deleted, err := c.adm.DeleteTopics(c.ctx(), "ballast")
	c.must(errors.Join(err, deleted.Error()))
	deadline := time.Now().Add(20 * time.Second)
	for err = c.produce("t", 0, 500_000); err != nil; err = c.produce("t", 0, 500_000) {
		if time.Now().After(deadline) {
			t.Fatalf("with space again: %v", err)
		}
	}
	acked++
	if code := n.stop(t, syscall.SIGTERM); code != 0 {
		t.Fatalf("the stop ended with %d:\n%s", code, n.log)
	}
	n = start(t, t.TempDir(), "--set", "log.dirs="+filepath.Join(disk.Mount, "data"))
	if got := diskClientOf(t, n).fetch("t", 0, acked); got != acked {
		t.Fatalf("after a restart %d records can be read, %d were acknowledged", got, acked)
	}
	n.stop(t, syscall.SIGTERM)
}

// D5: the disk of one of two log directories refuses writes. Its partitions answer KAFKA_STORAGE_ERROR and are read on, the
// others take records, DescribeLogDirs shows which is which, and after a restart on a disk that works again everything
// acknowledged is there.
func TestProcessWithAFailedDisk(t *testing.T) {
	disk, home := loopdisk.New(t, "ext4", 64<<20), t.TempDir()
	good, bad := filepath.Join(home, "good"), filepath.Join(disk.Mount, "bad")
	args := []string{"--set", "log.dirs=" + good + "," + bad, "--set", "metadata.log.dir=" + filepath.Join(home, "good")}
	n := start(t, home, args...)
	c := diskClientOf(t, n)
	c.create("t", 4)
	acked := map[int32]int{}
	on := map[bool][]int32{} // partitions by whether their disk will fail
	for p := range int32(4) {
		c.must(c.produce("t", p, 100))
		acked[p]++
		_, err := os.Stat(filepath.Join(bad, fmt.Sprintf("t-%d", p)))
		on[err == nil] = append(on[err == nil], p)
	}
	if len(on[true]) != 2 || len(on[false]) != 2 {
		t.Fatalf("partitions by directory: %v", on)
	}
	disk.FailWrites()
	for _, p := range on[true] {
		for range 3 {
			if err := c.produce("t", p, 5000); !errors.Is(err, kerr.KafkaStorageError) {
				t.Fatalf("partition %d on the failed disk: %v", p, err)
			}
		}
	}
	for _, p := range on[false] {
		c.must(c.produce("t", p, 100))
		acked[p]++
	}
	for p := range int32(4) {
		if got := c.fetch("t", p, acked[p]); got != acked[p] {
			t.Fatalf("partition %d: %d records can be read, %d were acknowledged", p, got, acked[p])
		}
	}
	dirs, err := c.adm.DescribeAllLogDirs(c.ctx(), nil)
	c.must(err)
	for _, byDir := range dirs {
		if !errors.Is(byDir[bad].Err, kerr.KafkaStorageError) || byDir[good].Err != nil || len(byDir[good].Topics["t"]) != 2 {
			t.Fatalf("log directories are described as %+v", byDir)
		}
	}
	c.create("later", 2)
	for p := range int32(2) {
		c.must(c.produce("later", p, 100))
	}
	n.stop(t, syscall.SIGTERM)
	disk.Repair()
	n = start(t, home, args...)
	c = diskClientOf(t, n)
	for p := range int32(4) {
		if got := c.fetch("t", p, acked[p]); got != acked[p] {
			t.Fatalf("after a restart partition %d: %d records can be read, %d were acknowledged", p, got, acked[p])
		}
		c.must(c.produce("t", p, 100))
	}
	n.stop(t, syscall.SIGTERM)
}

// A disk that cannot be read at the start takes its own partitions out of service and nothing else; no empty log takes the
// place of one that lies there, and with the disk everything comes back.
func TestProcessStartsWithoutADisk(t *testing.T) {
	disk, home := loopdisk.New(t, "ext4", 64<<20), t.TempDir()
	good, bad := filepath.Join(home, "good"), filepath.Join(disk.Mount, "bad")
	args := []string{"--set", "log.dirs=" + good + "," + bad, "--set", "metadata.log.dir=" + good}
	n := start(t, home, args...)
	c := diskClientOf(t, n)
	c.create("t", 4)
	lost := map[int32]bool{}
	for p := range int32(4) {
		c.must(c.produce("t", p, 100))
		_, err := os.Stat(filepath.Join(bad, fmt.Sprintf("t-%d", p)))
		lost[p] = err == nil
	}
	if code := n.stop(t, syscall.SIGTERM); code != 0 {
		t.Fatalf("the stop ended with %d:\n%s", code, n.log)
	}
	disk.Sync()
	disk.Shutdown()
	n = start(t, home, args...)
	c = diskClientOf(t, n)
	for p := range int32(4) {
		if err := c.produce("t", p, 100); lost[p] && err == nil || !lost[p] && err != nil {
			t.Fatalf("partition %d, on the lost disk %v: %v", p, lost[p], err)
		}
	}
	c.create("new", 2)
	for p := range int32(2) {
		c.must(c.produce("new", p, 100))
	}
	dirs, err := c.adm.DescribeAllLogDirs(c.ctx(), nil)
	c.must(err)
	for _, byDir := range dirs {
		if !errors.Is(byDir[bad].Err, kerr.KafkaStorageError) || byDir[good].Err != nil {
			t.Fatalf("log directories are described as %+v", byDir)
		}
	}
	n.stop(t, syscall.SIGTERM)
	disk.Remount()
	n = start(t, home, args...)
	c = diskClientOf(t, n)
	for p := range int32(4) {
		want := 2
		if lost[p] {
			want = 1
		}
		if got := c.fetch("t", p, want); got != want {
			t.Fatalf("with the disk again partition %d: %d records, want %d", p, got, want)
		}
		c.must(c.produce("t", p, 100))
	}
	n.stop(t, syscall.SIGTERM)
}

// The store of the controller's log is a directory of its own: an error of it ends the process with 1 and a message.
func TestProcessEndsWhenItsMetadataStoreFails(t *testing.T) {
	disk, home := loopdisk.New(t, "ext4", 64<<20), t.TempDir()
	n := start(t, home, "--set", "log.dirs="+filepath.Join(home, "data"), "--set", "metadata.log.dir="+filepath.Join(disk.Mount, "meta"))
	c := diskClientOf(t, n)
	c.create("t", 1)
	c.must(c.produce("t", 0, 100))
	disk.FailWrites()
	if _, err := c.adm.CreateTopic(c.ctx(), 1, 1, nil, "refused"); err == nil {
		t.Fatal("a topic was created that the controller cannot write down")
	}
	<-n.drained
	_ = n.Wait()
	if code := n.ProcessState.ExitCode(); code != 1 || !strings.Contains(n.log.String(), "raft") {
		t.Fatalf("exit code %d:\n%s", code, n.log)
	}
}
