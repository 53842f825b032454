package compattests_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/javatool"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Replicas that move between the log directories of a node (KIP-113).

const moveRate = "replica.alter.log.dirs.io.max.bytes.per.second"

// startMover is a node of two log directories.
func startMover(t *testing.T) (b *target.Broker, more string) {
	t.Helper()
	o := theSuite.options(t, kind(t))
	o.Dir = t.TempDir()
	b, err := target.New(o)
	if err != nil {
		t.Fatal(err)
	}
	more = filepath.Join(b.Dir, "more")
	b.Set("log.dirs", b.DataDir()+","+more)
	t.Cleanup(func() {
		if err := b.Kill(); err != nil {
			t.Error(err)
		}
	})
	keepLogOnFailure(t, b)
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b, more
}

// whereabouts are the log directories that a node shows a partition in; a future replica has + and its lag, if there is any, behind.
func whereabouts(t *testing.T, b *target.Broker, topic string, p int32) string {
	t.Helper()
	req := kmsg.NewPtrDescribeLogDirsRequest()
	req.Version = 4
	rt := kmsg.NewDescribeLogDirsRequestTopic()
	rt.Topic, rt.Partitions = topic, []int32{p}
	req.Topics = append(req.Topics, rt)
	var present, future []string
	for _, d := range do[*kmsg.DescribeLogDirsResponse](t, dial(t, b), req).Dirs {
		for _, dt := range d.Topics {
			for _, dp := range dt.Partitions {
				switch name := filepath.Base(d.Dir); {
				case !dp.IsFuture:
					present = append(present, name)
				case dp.OffsetLag > 0:
					future = append(future, name+"+lag")
				default:
					future = append(future, name+"+")
				}
			}
		}
	}
	return strings.Join(append(present, future...), " ")
}

// alterDir asks for one partition and gives the answer's code.
func alterDir(t *testing.T, c *raw.Conn, version int16, dir, topic string, p int32) int16 {
	t.Helper()
	req := kmsg.NewPtrAlterReplicaLogDirsRequest()
	req.Version = version
	rd, rt := kmsg.NewAlterReplicaLogDirsRequestDir(), kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	rd.Dir, rt.Topic, rt.Partitions = dir, topic, []int32{p}
	rd.Topics = append(rd.Topics, rt)
	req.Dirs = append(req.Dirs, rd)
	resp := do[*kmsg.AlterReplicaLogDirsResponse](t, c, req)
	if len(resp.Topics) != 1 || resp.Topics[0].Topic != topic || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != p {
		t.Fatalf("answer %+v", resp.Topics)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// limitMoves bounds what moves at one node copy in a second; "": no bound.
func limitMoves(t *testing.T, c *raw.Conn, node, rate string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, node
	cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	cfg.Name, cfg.Op, cfg.Value = moveRate, kmsg.IncrementalAlterConfigOpSet, &rate
	if rate == "" {
		cfg.Op, cfg.Value = kmsg.IncrementalAlterConfigOpDelete, nil
	}
	r.Configs = append(r.Configs, cfg)
	req.Resources = append(req.Resources, r)
	wantCode(t, "limit moves", do[*kmsg.IncrementalAlterConfigsResponse](t, c, req).Resources[0].ErrorCode, 0)
}

// fillMB produces about n MB to a partition.
func fillMB(t *testing.T, c *raw.Conn, topic string, n int) {
	t.Helper()
	filling := strings.Repeat("x", 50_000)
	for i := range 20 * n {
		mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values(fmt.Sprint(i, filling))...).Bytes())
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	if err := poll.Until(t.Context(), 2*time.Minute, what, func() (bool, error) { return ready(), nil }); err != nil {
		t.Fatal(err)
	}
}

// What AlterReplicaLogDirs answers, in each version, and what DescribeLogDirs and kafka-log-dirs show of a move under way, one that is
// cancelled, and one that ends, while a producer writes: the same on Kafka.
func TestMoveBetweenLogDirs(t *testing.T) {
	b, more := startMover(t)
	topic := fresh(t, "move")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	fillMB(t, c, topic, 4)
	other := func() string {
		if whereabouts(t, b, topic, 0) == "data" {
			return more
		}
		return b.DataDir()
	}
	for version := int16(1); version <= 2; version++ {
		for _, tt := range []struct {
			dir, topic string
			partition  int32
			code       int16
		}{
			{b.DataDir() + "x", topic, 0, 57}, {other() + "/", topic, 0, 57}, {other(), topic, 9, 3}, {other(), "absent", 0, 3},
			{other(), strings.Repeat("l", 214), 0, 17}, {other(), strings.Repeat("l", 213), 0, 3}, {b.DataDir() + "x", "absent", 0, 57},
		} {
			wantCode(t, fmt.Sprintf("v%d %s %.20s-%d", version, tt.dir, tt.topic, tt.partition), alterDir(t, c, version, tt.dir, tt.topic, tt.partition), tt.code)
		}
		limitMoves(t, c, "1", "200000")
		from, to := whereabouts(t, b, topic, 0), other()
		wantCode(t, "move", alterDir(t, c, version, to, topic, 0), 0)
		if got, want := whereabouts(t, b, topic, 0), from+" "+filepath.Base(to)+"+lag"; got != want {
			t.Fatalf("v%d: under way: %s, want %s", version, got, want)
		}
		wantCode(t, "the same again", alterDir(t, c, version, to, topic, 0), 0)
		if version == 2 {
			need(t, "java")
			r := tool(t, javatool.Command{Tool: "kafka-log-dirs", Args: []string{"--bootstrap-server", b.Addr, "--describe", "--topic-list", topic}})
			if r.Exit != 0 || strings.Count(r.Out, `"partition":"`+topic+`-0"`) != 2 || strings.Count(r.Out, `"isFuture":true`) != 1 {
				t.Errorf("kafka-log-dirs: exit %d\n%.2000s", r.Exit, r.Out)
			}
		}
		wantCode(t, "cancel", alterDir(t, c, version, filepath.Join(b.Dir, from), topic, 0), 0)
		if got := whereabouts(t, b, topic, 0); got != from {
			t.Fatalf("v%d: cancelled: %s, want %s", version, got, from)
		}
		limitMoves(t, c, "1", "")
		l := startLoad(t, b, topic, 1, fmt.Sprintf("v%d-", version))
		wantCode(t, "move", alterDir(t, c, version, to, topic, 0), 0)
		eventually(t, "moved", func() bool { return whereabouts(t, b, topic, 0) == filepath.Base(to) })
		eventually(t, "acknowledged", func() bool { return l.count() > 1000 })
		checkAcked(t, b, topic, l.stop())
	}
}

// A node is killed while a replica moves: afterwards the move goes on by itself to its end, and nothing that was acknowledged is
// missing.
func TestMoveGoesOnAfterAKill(t *testing.T) {
	b, more := startMover(t)
	topic := fresh(t, "movekill")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	fillMB(t, c, topic, 4)
	from, to := whereabouts(t, b, topic, 0), more
	if from == "more" {
		to = b.DataDir()
	}
	limitMoves(t, c, "1", "200000")
	wantCode(t, "move", alterDir(t, c, 2, to, topic, 0), 0)
	l := startLoad(t, b, topic, 1, "k")
	eventually(t, "acknowledged", func() bool { return l.count() > 1000 })
	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	acked := l.stop()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := whereabouts(t, b, topic, 0), from+" "+filepath.Base(to)+"+lag"; got != want {
		t.Fatalf("after the kill: %s, want %s", got, want)
	}
	limitMoves(t, dial(t, b), "1", "")
	eventually(t, "moved", func() bool { return whereabouts(t, b, topic, 0) == filepath.Base(to) })
	checkAcked(t, b, topic, acked)
}

// Replicas of a topic on three nodes move at all of them, leaders and followers, while a producer writes with acks=all; then each
// node in turn is killed and started again.
func TestMoveOnThreeNodes(t *testing.T) {
	if kind(t) != target.Kaja {
		t.Skip("three nodes of kaja")
	}
	o := theSuite.options(t, target.Kaja)
	o.Dir, o.Config = t.TempDir(), map[string]string{"offsets.topic.num.partitions": "4", "min.insync.replicas": "2"}
	cluster, err := target.NewCluster(o, 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Kill(); err != nil {
			t.Error(err)
		}
	})
	for _, b := range cluster.Nodes {
		b.Set("log.dirs", b.DataDir()+","+filepath.Join(b.Dir, "more"))
		keepLogOnFailure(t, b)
	}
	if err := cluster.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	topic, first := fresh(t, "move3"), cluster.Nodes[0]
	got := createTopic(t, dial(t, first), topic, 3, 3, false, nil)
	wantCode(t, "create", got.ErrorCode, 0)
	eventually(t, "the topic is everywhere", func() bool {
		for _, b := range cluster.Nodes {
			if whereabouts(t, b, topic, 2) == "" {
				return false
			}
		}
		return true
	})
	l := startLoad(t, first, topic, 3, "m", kgo.SeedBrokers(cluster.Addrs()...))
	eventually(t, "acknowledged", func() bool { return l.count() > 3000 })
	for _, b := range cluster.Nodes {
		c := dial(t, b)
		for p := range int32(3) {
			to := "more"
			if whereabouts(t, b, topic, p) == "more" {
				to = "data"
			}
			wantCode(t, "move", alterDir(t, c, 2, filepath.Join(b.Dir, to), topic, p), 0)
			eventually(t, "moved", func() bool { return whereabouts(t, b, topic, p) == to })
		}
	}
	before := l.count()
	eventually(t, "acknowledged", func() bool { return l.count() > before+3000 })
	for _, b := range cluster.Nodes {
		if err := b.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range l.stop() {
		var leader *target.Broker
		eventually(t, "a leader", func() bool {
			for _, b := range cluster.Nodes {
				if listOffset(t, dial(t, b), topic, int32(p), -1).ErrorCode == 0 {
					leader = b
				}
			}
			return leader != nil
		})
		checkAckedOf(t, leader, topic, p, want)
	}
}
