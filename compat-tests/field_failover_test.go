package compattests_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// Cases from the field that concern leaders that change, topics that are made anew, and clients that come all at once.

// leaderOf waits until some of nodes, all of them running, serves as the leader of a partition.
func leaderOf(t *testing.T, nodes []*target.Broker, topic string, partition int32) *target.Broker {
	t.Helper()
	var leader *target.Broker
	err := poll.Until(t.Context(), 30*time.Second, "a leader of "+topic, func() (bool, error) {
		for _, b := range nodes {
			if listOffset(t, dial(t, b), topic, partition, -1).ErrorCode == 0 {
				leader = b
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return leader
}

// partitionOf is a partition as b's metadata has it.
func partitionOf(t *testing.T, b *target.Broker, topic string, partition int) kmsg.MetadataResponseTopicPartition {
	t.Helper()
	return metadata(t, dial(t, b), 12, false, topic).Topics[0].Partitions[partition]
}

// awaitISR waits until b's metadata have so many replicas in sync.
func awaitISR(t *testing.T, b *target.Broker, topic string, n int) {
	t.Helper()
	err := poll.Until(t.Context(), 60*time.Second, fmt.Sprint(n, " replicas in sync"), func() (bool, error) {
		isr := partitionOf(t, b, topic, 0).ISR
		return len(isr) == n, fmt.Errorf("%v", isr)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// others are nodes without one.
func others(nodes []*target.Broker, not *target.Broker) []*target.Broker {
	return slices.DeleteFunc(slices.Clone(nodes), func(b *target.Broker) bool { return b == not })
}

// pause stops a process from running, as a machine that hangs; resume lets it go on. It returns when no thread runs any more.
func pause(t *testing.T, b *target.Broker) (resume func()) {
	t.Helper()
	pid := b.PID()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(resume)
	err := poll.Until(t.Context(), 20*time.Second, "every thread stands still", func() (bool, error) {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			return false, err
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", pid, thread.Name()))
			if err != nil {
				return false, err
			}
			if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "T") {
				return false, fmt.Errorf("thread %s: %.40s", thread.Name(), after)
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return resume
}

// B08: a leader that was cut off took records with acks=1 that its successor never had. They go when it comes back, on every
// replica, and whoever asks by epoch is told where the histories part.
func TestFieldB08CutOffLeader(t *testing.T) {
	nodes := ownNodes(t, 3)
	const topic = "b08"
	makeTopics(t, addresses(nodes), 1, 3, topic)
	first := leaderOf(t, nodes, topic, 0)
	c := dial(t, first)
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values("kept 0", "kept 1", "kept 2")...).Bytes())
	before := partitionOf(t, first, topic, 0).LeaderEpoch

	rest := others(nodes, first)
	resume := []func(){pause(t, rest[0]), pause(t, rest[1])}
	// What a follower had asked for before is answered when a longer wait is over: else the answer to it would hold what is to be lost.
	longer := fetchRequest(topic, 0, 3)
	longer.MinBytes, longer.MaxWaitMillis = 1, 1000 // replica.fetch.wait.max.ms is 500
	if got := fetchOnce(t, c, longer); len(got.RecordBatches) > 0 {
		t.Fatalf("%d bytes at the end of the log", len(got.RecordBatches))
	}
	lost := produceRequest(topic, 0, raw.NewBatch(raw.Numbered("lost ", 0, 5)...).Bytes())
	lost.Acks = 1
	p := onlyPartition(t, do[*kmsg.ProduceResponse](t, c, lost))
	wantCode(t, "acks=1 at a leader that is cut off", p.ErrorCode, 0)
	if p.BaseOffset != 3 {
		t.Errorf("stored at %d, want 3", p.BaseOffset)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, r := range resume {
		r()
	}
	second := leaderOf(t, rest, topic, 0)
	c = dial(t, second)
	if base := mustProduce(t, c, topic, 0, raw.NewBatch(raw.Values("new 0", "new 1")...).Bytes()); base != 3 {
		t.Fatalf("the new leader stores at %d, want 3", base)
	}
	after := partitionOf(t, second, topic, 0).LeaderEpoch
	if after <= before {
		t.Errorf("leader epoch %d after %d", after, before)
	}
	commitWithEpoch(t, nodes, second, "b08-group", topic, 8, before)
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitISR(t, second, topic, 3)

	for epoch, want := range map[int32]string{
		before:    fmt.Sprintf("code 0 epoch %d end 3", before),
		after:     fmt.Sprintf("code 0 epoch %d end 5", after),
		after + 9: "code 0 epoch -1 end -1",
	} {
		if got := epochEnd(t, c, topic, 0, epoch); !strings.HasSuffix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for epoch, code := range map[int32]int16{before: 74, after: 0, after + 9: 75} {
		req := fetchRequest(topic, 0, 3)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		wantCode(t, fmt.Sprintf("Fetch under epoch %d of %d", epoch, after), fetchOnce(t, c, req).ErrorCode, code)
	}
	if o := listOffset(t, c, topic, 0, -1); o.Offset != 5 || o.LeaderEpoch != after {
		t.Errorf("the end is %d of epoch %d, want 5 of %d", o.Offset, o.LeaderEpoch, after)
	}
	// Whoever goes on at the lost end, with the epoch that he has read it in, begins where the histories part.
	consumer := clientAt(t, addresses(nodes), kgo.ConsumerGroup("b08-group"), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	wantLines(t, "a consumer from the lost end", readValues(t, consumer, 2), []string{"new 0", "new 1"})
	var reference []byte
	for i, b := range nodes { // a debugging consumer reads any replica
		req := fetchRequest(topic, 0, 0)
		req.ReplicaID = -2
		got := fetchOnce(t, dial(t, b), req)
		wantCode(t, fmt.Sprintf("read the replica of node %d", i+1), got.ErrorCode, 0)
		if reference == nil {
			reference = got.RecordBatches
		}
		if !bytes.Equal(got.RecordBatches, reference) {
			t.Errorf("the replicas of node 1 and %d differ", i+1)
		}
	}
}

// commitWithEpoch commits an offset and the leader epoch that it was read in, and checks that it is given back with both.
func commitWithEpoch(t *testing.T, nodes []*target.Broker, b *target.Broker, group, topic string, offset int64, epoch int32) {
	t.Helper()
	alive := slices.DeleteFunc(slices.Clone(nodes), func(n *target.Broker) bool {
		select {
		case <-n.Exited():
			return true
		default:
			return false
		}
	})
	admin := kadm.NewClient(clientAt(t, addresses(alive)))
	ctx, cancel := withTimeout(t, 40*time.Second)
	defer cancel()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: offset, LeaderEpoch: epoch})
	if err := admin.CommitAllOffsets(ctx, group, offsets); err != nil {
		t.Fatal(err)
	}
	got, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup(topic, 0); o.At != offset || o.LeaderEpoch != epoch {
		t.Errorf("committed %d of epoch %d at %s, and it is %d of %d", offset, epoch, b.Addr, o.At, o.LeaderEpoch)
	}
}

// readValues polls so many values.
func readValues(t *testing.T, client *kgo.Client, n int) []string {
	t.Helper()
	ctx, cancel := withTimeout(t, 60*time.Second)
	defer cancel()
	var values []string
	for len(values) < n {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("read %q, want %d values: %v", values, n, fetches.Err())
		}
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// B11, where the leader dies: its successor knows the last five batches of each producer as well.
func TestFieldB11RepeatedAtTheNextLeader(t *testing.T) {
	nodes := ownNodes(t, 3)
	const topic = "b11"
	makeTopics(t, addresses(nodes), 1, 3, topic)
	leader := leaderOf(t, nodes, topic, 0)
	c := dial(t, leader)
	id, epoch := initProducer(t, c)
	send := func(seq int32) kmsg.ProduceResponseTopicPartition {
		return produce(t, c, topic, 0, raw.NewBatch(raw.Numbered("v", int(seq), 5)...).Idempotent(id, epoch, seq).Bytes())
	}
	for seq := int32(0); seq <= 25; seq += 5 {
		wantCode(t, fmt.Sprint("sequence ", seq), send(seq).ErrorCode, 0)
	}
	if err := leader.Kill(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, leaderOf(t, others(nodes, leader), topic, 0))
	for seq := int32(5); seq <= 25; seq += 5 {
		if p := send(seq); p.ErrorCode != 0 || p.BaseOffset != int64(seq) {
			t.Errorf("repeat of sequence %d at the next leader: code %d at %d", seq, p.ErrorCode, p.BaseOffset)
		}
	}
	wantCode(t, "older than the last five", send(0).ErrorCode, 45)
	wantCode(t, "a gap", send(40).ErrorCode, 45)
	if p := send(30); p.ErrorCode != 0 || p.BaseOffset != 30 {
		t.Errorf("the next sequence: code %d at %d", p.ErrorCode, p.BaseOffset)
	}
	if end := listOffset(t, c, topic, 0, -1).Offset; end != 35 {
		t.Errorf("end %d, want 35", end)
	}
}

// B35: a topic that is deleted and made again under its name is another topic to everybody: old ids, old sessions, old commits and
// old positions count for nothing, and readers that are told so read the new one from its start.
func TestFieldB35RecreatedTopic(t *testing.T) { onSizes(t, fieldB35RecreatedTopic) }

func fieldB35RecreatedTopic(t *testing.T, b *target.Broker) {
	topic, group := fresh(t, "b35"), fresh(t, "b35-group")
	makeTopic(t, b, topic, 1, nil)
	c := dial(t, b)
	mustProduce(t, c, topic, 0, raw.NewBatch(raw.Numbered("old ", 0, 10)...).Bytes())
	readers := map[string]*kgo.Client{
		"by id":   newClient(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())),
		"by name": newClient(t, b, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MaxVersions(kversion.V2_7_0())),
	}
	var old []string
	for i := range 10 {
		old = append(old, fmt.Sprint("old ", i))
	}
	for how, r := range readers {
		wantLines(t, "the old topic, read "+how, readValues(t, r, 10), old)
	}
	commitAlone(t, b, group, topic, 0, 10)
	id := metadata(t, c, 12, false, topic).Topics[0].TopicID
	byID := fetchRequest("", 0, 10)
	byID.Version, byID.SessionEpoch, byID.Topics[0].TopicID = 13, 0, id
	session := do[*kmsg.FetchResponse](t, c, byID).SessionID
	if session == 0 {
		t.Fatal("no fetch session was made")
	}

	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TimeoutMillis, del.TopicNames = 5, 10_000, []string{topic}
	wantCode(t, "DeleteTopics", do[*kmsg.DeleteTopicsResponse](t, c, del).Topics[0].ErrorCode, 0)
	next := kmsg.NewPtrFetchRequest()
	next.Version, next.ReplicaID, next.MaxBytes, next.SessionID, next.SessionEpoch = 13, -1, 1<<20, session, 0
	inSession := func() int16 {
		next.SessionEpoch++
		answer := do[*kmsg.FetchResponse](t, c, next)
		if answer.ErrorCode != 0 {
			t.Fatalf("the session that began with the old id: code %d", answer.ErrorCode)
		}
		if len(answer.Topics) == 0 {
			return 0
		}
		if answer.Topics[0].TopicID != id {
			t.Errorf("the session answers for topic %x", answer.Topics[0].TopicID)
		}
		return answer.Topics[0].Partitions[0].ErrorCode
	}
	gone := int16(0)
	if err := poll.Until(t.Context(), 20*time.Second, "the session knows that the topic is gone", func() (bool, error) {
		gone = inSession()
		return gone != 0, nil
	}); err != nil {
		t.Error(err)
	}
	wantCode(t, "the old id, of a topic that is gone", gone, 3)
	makeTopic(t, b, topic, 3, nil)
	if again := metadata(t, c, 12, false, topic).Topics[0].TopicID; again == id {
		t.Errorf("the new topic has the old one's id %x", id)
	}
	byID.SessionEpoch = -1
	wantCode(t, "Fetch by the old id", fetchOnce(t, c, byID).ErrorCode, 100)
	wantCode(t, "the old id, of a topic that was made anew", inSession(), 103)
	wantCode(t, "Fetch by name at the old position", fetchOnce(t, c, fetchRequest(topic, 0, 10)).ErrorCode, 1)
	err := poll.Until(t.Context(), 20*time.Second, "no committed offset", func() (bool, error) {
		o := committed(t, c, group, topic, 0)
		return o == -1, fmt.Errorf("offset %d", o)
	})
	if err != nil {
		t.Error(err)
	}
	if base := mustProduce(t, c, topic, 0, raw.NewBatch(raw.Numbered("new ", 0, 5)...).Bytes()); base != 0 {
		t.Errorf("the first new record is at %d", base)
	}
	readers["by id"].PurgeTopicsFromConsuming(topic) // franz-go takes an id to be for good
	readers["by id"].AddConsumeTopics(topic)
	for how, r := range readers {
		wantLines(t, "the new topic, read "+how, readValues(t, r, 5), []string{"new 0", "new 1", "new 2", "new 3", "new 4"})
	}
}

// B41, one replica: the least number of replicas in sync is at most the number of replicas.
func TestFieldB41MoreInSyncThanThereAre(t *testing.T) {
	need(t, "kcat")
	b := sharedBroker(t)
	topic := fresh(t, "b41")
	makeTopic(t, b, topic, 1, map[string]string{"min.insync.replicas": "2"})
	kcat(t, b, "a\n", "-P", "-t", topic)
	kcat(t, b, "b\n", "-P", "-t", topic, "-X", "acks=1")
	wantLines(t, "what was produced", lines(kcat(t, b, "", "-C", "-t", topic, "-o", "beginning", "-e", "-q")), []string{"a", "b"})
}

// B41, three replicas: below the minimum acks=all is refused before anything is stored, acks=1 is taken, and all of it heals by itself.
// Five nodes, so that the controllers have a majority with two of them gone.
func TestFieldB41BelowTheMinimum(t *testing.T) {
	nodes := ownNodes(t, 5)
	const topic = "b41"
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis = 7, 30_000
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = topic, -1, -1
	ct.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Replicas: []int32{1, 2, 3}}}
	ct.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "min.insync.replicas", Value: new("2")}}
	req.Topics = append(req.Topics, ct)
	leader := nodes[0]
	c := dial(t, leader)
	wantCode(t, "create", do[*kmsg.CreateTopicsResponse](t, c, req).Topics[0].ErrorCode, 0)
	awaitLeaders(t, leader, topic, 1)
	send := func(acks int16, value string) int16 {
		t.Helper()
		r := produceRequest(topic, 0, raw.NewBatch(raw.Values(value)...).Bytes())
		r.Acks = acks
		return onlyPartition(t, do[*kmsg.ProduceResponse](t, c, r)).ErrorCode
	}
	wantCode(t, "acks=all with three", send(-1, "three"), 0)
	for i, left := range []int{2, 1} {
		if err := nodes[1+i].Kill(); err != nil {
			t.Fatal(err)
		}
		awaitISR(t, leader, topic, left)
		if left == 2 {
			wantCode(t, "acks=all with two", send(-1, "two"), 0)
		}
	}
	wantCode(t, "acks=all with one", send(-1, "refused"), 19)
	wantCode(t, "acks=1 with one", send(1, "alone"), 0)
	for _, b := range nodes[1:3] {
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	awaitISR(t, leader, topic, 3)
	wantCode(t, "acks=all with three again", send(-1, "again"), 0)
	wantLines(t, "what is stored", readPartition(t, leader, topic, 0), []string{"three", "two", "alone", "again"})
}

// B47: many clients ask for the metadata of many partitions, again and again and then all anew at the same moment. Memory stays
// bounded, everybody is answered, and who produces and consumes goes on.
func TestFieldB47MetadataStorm(t *testing.T) { onNodes(t, fieldB47MetadataStorm) }

func fieldB47MetadataStorm(t *testing.T, nodes []*target.Broker) {
	topics, connections, rounds := 50, 200, 3
	if long() {
		topics, connections, rounds = 1000, 2000, 30
	}
	const partitions = 20
	admin := kadm.NewClient(clientAt(t, addresses(nodes)))
	names := make([]string, topics)
	for i := range names {
		names[i] = fmt.Sprint("b47-", i)
	}
	for batch := range slices.Chunk(names, 50) {
		answers, err := admin.CreateTopics(t.Context(), partitions, 1, nil, batch...)
		if err == nil {
			err = answers.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var before []int64
	for _, b := range nodes { // those that did not make the topics hear of them a moment later
		err := poll.Until(t.Context(), 30*time.Second, "every topic is known", func() (bool, error) {
			n := len(metadata(t, dial(t, b), 12, false).Topics)
			return n >= topics, fmt.Errorf("%d topics", n)
		})
		if err != nil {
			t.Fatal(err)
		}
		before = append(before, residentBytes(t, b))
	}
	ask := func(c *raw.Conn) error {
		req := kmsg.NewPtrMetadataRequest()
		req.Version = 12
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		if m := resp.(*kmsg.MetadataResponse); len(m.Topics) < topics {
			return fmt.Errorf("%d topics, want %d", len(m.Topics), topics)
		}
		return nil
	}
	storm := func(rounds int) {
		var wg sync.WaitGroup
		for i := range connections {
			wg.Go(func() {
				c, err := raw.Dial(nodes[i%len(nodes)].Addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = c.Close() }()
				c.Timeout = 2 * time.Minute
				for range rounds {
					if err := ask(c); err != nil {
						t.Errorf("connection %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	client := clientAt(t, addresses(nodes), kgo.ConsumeTopics(names[0]), kgo.DefaultProduceTopic(names[0]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	stormed := make(chan struct{})
	go func() {
		defer close(stormed)
		storm(rounds)
		storm(1)
	}()
	produced, slowest := 0, time.Duration(0)
	for storming := true; storming || produced < 100; produced++ {
		at := time.Now()
		if err := client.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(produced))).FirstErr(); err != nil {
			t.Fatalf("beside the storm: %v", err)
		}
		slowest = max(slowest, time.Since(at))
		select {
		case <-stormed:
			storming = false
		default:
		}
	}
	if got := readValues(t, client, produced); len(got) != produced {
		t.Errorf("read %d of %d records", len(got), produced)
	}
	for i, b := range nodes {
		if grown := residentBytes(t, b) - before[i]; grown > 512<<20 {
			t.Errorf("node %d grew by %d MiB", i+1, grown>>20)
		}
	}
	t.Logf("%d connections, %d partitions: %d records beside them, the slowest took %v", connections, topics*partitions, produced, slowest)
}
