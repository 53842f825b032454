package compattests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/clients"
	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stepWithin bounds what a client needs for one thing, a killed node included, on a busy machine.
const stepWithin = 5 * time.Minute

// How often things happen before and after a node is killed.
const (
	batchesEach      = 5 // of 20 records
	transactionsEach = 4
	recordsEach      = 120
)

const groupPartitions = 6

// TestMatrix runs each client on one node, which is killed and started again under it, and on three, of which one is killed in the
// middle of its work: the leader of a partition that it writes to, the coordinator of its transactions and those of its groups. What
// was acknowledged is there, once. In CI most clients work on three nodes that stay, and the sturdy ones lose the leader, for clients
// have faults of their own that a killed node brings out (docs/limits.md); KAJA_COMPAT_LONG runs everything.
func TestMatrix(t *testing.T) {
	for _, c := range matrix {
		for _, nodes := range []int{1, 3} {
			if nodes == 1 && !c.sturdy && !long() {
				continue
			}
			t.Run(c.name+"/"+map[int]string{1: "one", 3: "three"}[nodes], func(t *testing.T) {
				if c.slow && !long() {
					t.Skip("its installation compiles for minutes: KAJA_COMPAT_LONG=1")
				}
				set := need(t, c.needs...)
				t.Parallel()
				runMatrix(t, c, set, nodes)
			})
		}
	}
}

// arena is one client and its cluster.
type arena struct {
	t       *testing.T
	cluster *target.Cluster
	client  *kgo.Client
	admin   *kadm.Client
	p       *program
	name    string
	seen    target.Seen
	sent    int // values in the topic of the groups
}

func runMatrix(t *testing.T, c matrixClient, set clients.Set, nodes int) {
	t.Helper()
	a := &arena{t: t, cluster: startCluster(t, nodes), name: strings.NewReplacer(".", "-", "@", "", "/", "-", " ", "-").Replace(c.name), seen: target.Seen{}}
	a.connect(nodes)
	steps := c.steps
	if !long() && c.quick != nil {
		steps = c.quick
	}
	args, env := c.command(set)
	args = append(slices.Clone(args), a.cluster.Clients(), a.name, strconv.Itoa(nodes))
	a.p = startProgram(t, env, append(args, steps...)...)
	for _, step := range steps {
		a.p.begun(step)
		switch kind, mode, _ := strings.Cut(step, ":"); kind {
		case "flow":
			a.flow(!c.resends, c.sturdy || long())
		case "txn":
			a.transactions(&c, long())
		case "group":
			a.group(mode, long() && !c.readersDie)
		}
	}
	a.p.finish()
	a.remember()
	t.Logf("%s on %d nodes: %d checks, %d numbers acknowledged, %d transactions (%d of unknown outcome)", c.name, nodes, len(a.p.checks), len(a.p.history.acked),
		len(a.p.history.outcomes), len(slices.DeleteFunc(sortedInts(a.p.history.outcomes), func(i int) bool { return a.p.history.outcomes[i] != "unknown" })))
	if len(a.p.checks) < c.checks && c.quick == nil {
		t.Errorf("%d checks, want at least %d:\n%s", len(a.p.checks), c.checks, strings.Join(a.p.checks, "\n"))
	}
	if len(a.seen) > 0 {
		t.Logf("API versions of %s: %s", c.name, a.seen)
	}
}

// startCluster starts a cluster; it is killed when the test ends.
func startCluster(t *testing.T, nodes int) *target.Cluster {
	t.Helper()
	o := theSuite.options(t, kind(t))
	o.Dir, o.Config = t.TempDir(), map[string]string{"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4", "min.insync.replicas": strconv.Itoa((nodes + 1) / 2)}
	c, err := target.NewCluster(o, nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kill(); err != nil {
			t.Errorf("end the cluster: %v", err)
		}
	})
	for _, b := range c.Nodes {
		keepLogOnFailure(t, b)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// connect makes the test's own client and the topics that a program finds.
func (a *arena) connect(nodes int) {
	a.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(a.cluster.Addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(client.Close)
	a.client, a.admin = client, kadm.NewClient(client)
	err = poll.Until(a.t.Context(), stepWithin, "all nodes serve", func() (bool, error) {
		m, err := a.metadata()
		if err != nil {
			return false, err
		}
		return len(m.Brokers) == nodes, fmt.Errorf("%d do", len(m.Brokers))
	})
	if err != nil {
		a.t.Fatal(err)
	}
	for topic, partitions := range map[string]int32{"-flow": 3, "-txn": 3, "-in": 1, "-group": groupPartitions} {
		if _, err := a.admin.CreateTopic(a.t.Context(), partitions, int16(nodes), nil, a.name+topic); err != nil {
			a.t.Fatalf("create %s: %v", a.name+topic, err)
		}
	}
	a.settle()
}

// metadata asks for all topics; kadm would answer from memory.
func (a *arena) metadata() (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(a.t.Context(), 20*time.Second)
	defer cancel()
	return kmsg.NewPtrMetadataRequest().RequestWith(ctx, a.client)
}

// settle waits until every replica of every partition is in sync.
func (a *arena) settle() {
	a.t.Helper()
	err := poll.Until(a.t.Context(), stepWithin, "all replicas are in sync", func() (bool, error) {
		m, err := a.metadata()
		if err != nil {
			return false, err
		}
		if len(m.Brokers) != len(a.cluster.Nodes) || len(m.Topics) == 0 {
			return false, fmt.Errorf("%d brokers", len(m.Brokers))
		}
		for _, topic := range m.Topics {
			for _, p := range topic.Partitions {
				if p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
					return false, fmt.Errorf("%s-%d: leader %d, %d of %d in sync", *topic.Topic, p.Partition, p.Leader, len(p.ISR), len(p.Replicas))
				}
			}
		}
		return true, nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// remember takes over what the nodes have seen; one that has just started may not show it yet.
func (a *arena) remember() {
	a.t.Helper()
	insist(a, "metrics", func() (struct{}, error) { return struct{}{}, a.cluster.AddSeen(a.t.Context(), a.seen) })
}

// strike kills a node while the program works. A lone one is started at once; one of three when the program has gone on without it.
func (a *arena) strike(node int32, goOn func()) {
	a.t.Helper()
	a.remember()
	b := a.cluster.Nodes[node-1]
	if err := b.Kill(); err != nil {
		a.t.Fatal(err)
	}
	alone := len(a.cluster.Nodes) == 1
	if alone {
		a.start(b)
	}
	goOn()
	if !alone {
		a.start(b)
	}
	a.settle()
}

func (a *arena) start(b *target.Broker) {
	a.t.Helper()
	if err := b.Start(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// coordinator gives the node that coordinates a group or a transactional id.
func (a *arena) coordinator(name string, find func(context.Context, ...string) kadm.FindCoordinatorResponses) int32 {
	a.t.Helper()
	return insist(a, "coordinator of "+name, func() (int32, error) {
		found := find(a.t.Context(), name)[name]
		return found.NodeID, found.Err
	})
}

// insist asks until it is answered: a connection to a node that was killed is found broken by the first request on it.
func insist[T any](a *arena, what string, ask func() (T, error)) T {
	a.t.Helper()
	var got T
	err := poll.Until(a.t.Context(), stepWithin, what, func() (bool, error) {
		var err error
		got, err = ask()
		return err == nil, err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return got
}

// leader gives the leader of partition 0 of a topic.
func (a *arena) leader(topic string) int32 {
	a.t.Helper()
	m := insist(a, "metadata", a.metadata)
	for _, found := range m.Topics {
		if *found.Topic == topic {
			return found.Partitions[slices.IndexFunc(found.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == 0 })].Leader
		}
	}
	a.t.Fatalf("no topic %s", topic)
	return 0
}

func (a *arena) flow(idempotent, strike bool) {
	a.t.Helper()
	a.p.advance("records are acknowledged", batchesEach)
	if strike {
		a.strike(a.leader(a.name+"-flow"), func() { a.p.advance("records are acknowledged after the kill", batchesEach) })
		a.p.advance("records are acknowledged after the start", 1)
	}
	a.p.tell()
	a.ended("flow")
	for _, w := range judgeFlow(a.p.history, a.records(a.name+"-flow", kgo.ReadUncommitted()), idempotent) {
		a.t.Errorf("flow: %s", w)
	}
}

func (a *arena) transactions(c *matrixClient, strike bool) {
	a.t.Helper()
	a.p.advance("transactions end", transactionsEach)
	if strike {
		a.strike(a.coordinator(a.name+"-id", a.admin.FindTxnCoordinators), func() { a.p.advance("transactions end after the kill", transactionsEach) })
		a.p.advance("transactions end after the start", 1)
	}
	a.p.tell()
	a.ended("txn")
	records := a.records(a.name+"-txn", kgo.ReadCommitted())
	offset, read := int64(-1), a.name+"-flow"
	if c.reads {
		read = a.name + "-in"
	}
	offsets := insist(a, "offsets of the transactions", func() (kadm.OffsetResponses, error) { return a.admin.FetchOffsets(a.t.Context(), a.name+"-txn-g") })
	if o, ok := offsets.Lookup(read, 0); ok {
		offset = o.At
	} else if c.noOffsets {
		offset = notAsked
	}
	for _, w := range judgeTransactions(a.p.history, records, offset) {
		a.t.Errorf("transactions: %s", w)
	}
}

// group lets the program's members read, kills their coordinator, and lets them go on.
func (a *arena) group(mode string, strike bool) {
	a.t.Helper()
	group := a.name + "-" + mode
	a.feed()
	a.allRead(mode)
	if strike {
		a.strike(a.coordinator(group, a.admin.FindGroupCoordinators), func() { a.feed(); a.allRead(mode) })
	}
	// Both members have a part: more is sent until each has read some of it.
	members := func() int { a.p.mu.Lock(); defer a.p.mu.Unlock(); return len(a.p.read) }
	err := poll.Until(a.t.Context(), stepWithin, "both members read", func() (bool, error) {
		if members() == 2 {
			return true, nil
		}
		a.feed()
		a.allRead(mode)
		return members() == 2, fmt.Errorf("%d do", members())
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.p.tell()
	a.ended("group:" + mode)
	a.committed(group)
}

// feed sends values to the topic of the groups.
func (a *arena) feed() {
	a.t.Helper()
	var records []*kgo.Record
	for range recordsEach {
		records = append(records, &kgo.Record{Topic: a.name + "-group", Partition: int32(a.sent % groupPartitions), Value: []byte(strconv.Itoa(a.sent))})
		a.sent++
	}
	ctx, cancel := context.WithTimeout(a.t.Context(), stepWithin)
	defer cancel()
	if err := a.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		a.t.Fatalf("feed the group: %v", err)
	}
}

// allRead waits until the members have read everything that was sent.
func (a *arena) allRead(mode string) {
	a.t.Helper()
	a.p.await(mode+": the group reads everything", func() bool {
		all := map[string]bool{}
		for _, values := range a.p.read {
			for v := range values {
				all[v] = true
			}
		}
		return len(all) == a.sent
	})
}

// ended waits until a step is over.
func (a *arena) ended(step string) {
	a.t.Helper()
	a.p.await(step+" is over", func() bool { return a.p.step != step || verdict.MatchString(a.p.lines[len(a.p.lines)-1]) })
}

// committed waits until a group's offsets are the ends of its topic, where its members left them.
func (a *arena) committed(group string) {
	a.t.Helper()
	err := poll.Until(a.t.Context(), stepWithin, group+" has committed everything", func() (bool, error) {
		offsets, err := a.admin.FetchOffsets(a.t.Context(), group)
		if err != nil {
			return false, err
		}
		var at []int64
		sum := int64(0)
		for p := range int32(groupPartitions) {
			o, _ := offsets.Lookup(a.name+"-group", p)
			at = append(at, o.At)
			sum += o.At
		}
		return sum == int64(a.sent), fmt.Errorf("at %v, %d records are there", at, a.sent)
	})
	if err != nil {
		a.t.Error(err)
	}
}

// records reads a topic up to its end as it is now.
func (a *arena) records(topic string, isolation kgo.IsolationLevel) []stored {
	a.t.Helper()
	ends := map[int32]int64{}
	listed := insist(a, "ends of "+topic, func() (kadm.ListedOffsets, error) {
		listed, err := a.admin.ListEndOffsets(a.t.Context(), topic)
		return listed, errors.Join(err, listed.Error())
	})
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	reader, err := kgo.NewClient(kgo.SeedBrokers(a.cluster.Addrs()...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		a.t.Fatal(err)
	}
	defer reader.Close()
	var out []stored
	at := map[int32]int64{}
	err = poll.Until(a.t.Context(), stepWithin, topic+" is read", func() (bool, error) {
		ctx, cancel := context.WithTimeout(a.t.Context(), time.Second)
		defer cancel()
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			at[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, stored{r.Partition, string(r.Value)})
			}
		})
		for p, end := range ends {
			if at[p] < end {
				return false, fmt.Errorf("at %v of %v", at, ends)
			}
		}
		return true, nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}
