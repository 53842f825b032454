package raftctl

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

const testCluster = "5L6g3nShT-eMCtK--X86sw"

// testConfigs knows three topic configs.
type testConfigs struct{}

func (testConfigs) ValidateTopic(_, _, topic map[string]string) error {
	for name := range topic {
		switch name {
		case "retention.ms", "cleanup.policy", "min.insync.replicas":
		default:
			return fmt.Errorf("Unknown topic config name: %s", name)
		}
	}
	return nil
}

func (testConfigs) TopicValue(broker, cluster, topic map[string]string, name string) string {
	for _, layer := range []map[string]string{topic, broker, cluster} {
		if v, ok := layer[name]; ok {
			return v
		}
	}
	return map[string]string{"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}[name]
}

func (testConfigs) ListDefault(_ image.ResourceType, name string) (string, bool) {
	return "delete", name == "cleanup.policy"
}

func (testConfigs) ValidateBroker(_, _ Layers, _, elsewhere bool, changed []string) error {
	if elsewhere && slices.Contains(changed, "known.here") {
		return errors.New("not known there")
	}
	return nil
}

// idSource gives ids that differ and are the same in every run.
func idSource() func() wire.UUID {
	var mu sync.Mutex
	n := 0
	return func() wire.UUID {
		mu.Lock()
		defer mu.Unlock()
		n++
		return wire.UUID{0: 0xaa, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
	}
}

func testOptions(fs vfs.FS, publish func(*image.Delta, *image.Image)) Options {
	if publish == nil {
		publish = func(*image.Delta, *image.Image) {}
	}
	return Options{
		FS: fs, Dir: "/meta", ClusterID: testCluster, NodeID: 1, DirectoryID: wire.UUID{15: 200}, Seed: 1,
		NewUUID: idSource(), Logger: slog.New(slog.DiscardHandler), Configs: testConfigs{},
		Defaults: Defaults{NumPartitions: 1, ReplicationFactor: 1},
		Publish:  func(_ context.Context, d *image.Delta, img *image.Image) { publish(d, img) },
	}
}

func memFS() *memfs.FS { return memfs.New(func() time.Time { return time.Unix(0, 0) }) }

func openTest(t testing.TB, o Options) *Controller {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("open controller: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close controller: %v", err)
		}
	})
	return c
}

func registration(incarnation byte, previous wire.BrokerEpoch) Registration {
	return Registration{
		ID: 1, Incarnation: wire.UUID{15: incarnation}, PreviousEpoch: previous, LogDirs: []wire.UUID{{0: 1, 15: 201}},
		Endpoints: []image.Endpoint{{Listener: "PLAINTEXT", Host: "localhost", Port: 9092}},
		Features: map[string]image.VersionRange{
			image.FeatureMetadataVersion: {Min: 33, Max: 33}, image.FeatureELR: {Min: 0, Max: 1}, image.FeatureTransactionVersion: {Min: 0, Max: 2},
		},
	}
}

// startBroker registers and unfences broker 1.
func startBroker(t testing.TB, c *Controller, incarnation byte, previous wire.BrokerEpoch) wire.BrokerEpoch {
	t.Helper()
	epoch, err := c.RegisterBroker(t.Context(), registration(incarnation, previous))
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	if err := c.UnfenceBroker(t.Context(), 1, epoch); err != nil {
		t.Fatalf("unfence: %v", err)
	}
	return epoch
}

func create(t testing.TB, c *Controller, topics ...string) {
	t.Helper()
	var req []NewTopic
	for _, name := range topics {
		req = append(req, NewTopic{Name: name, Partitions: 1, ReplicationFactor: 1})
	}
	res, err := c.CreateTopics(t.Context(), req, false)
	if err != nil {
		t.Fatalf("create topics: %v", err)
	}
	for _, r := range res {
		if r.Err != nil {
			t.Fatalf("create topic %q: %v", r.Name, r.Err)
		}
	}
}

func stateHash(img *image.Image) string {
	h := sha256.New()
	if err := writeSnapshot(h, img); err != nil {
		panic(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestFreshClusterHasWhatKafkaWrites(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	img := c.Image()
	features := map[string]int16{}
	for name, level := range img.Features() {
		features[name] = level
	}
	if fmt.Sprint(features) != "map[eligible.leader.replicas.version:1 metadata.version:33 transaction.version:2]" {
		t.Errorf("features = %v", features)
	}
	if got := img.Config(image.ResourceBroker, ""); fmt.Sprint(got) != "map[min.insync.replicas:1]" {
		t.Errorf("cluster-wide configs = %v", got)
	}
	if img.ControllerEpoch() != 1 || img.ControllerID() != 1 {
		t.Errorf("controller %d of epoch %d, want 1 of 1", img.ControllerID(), img.ControllerEpoch())
	}
}

// What a process has sent before it was killed may arrive after the registration of the next one, which it must not fence.
func TestLateRegistrationOfADeadProcess(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	epoch := startBroker(t, c, 2, wire.NoBrokerEpoch)
	if _, err := c.RegisterBroker(t.Context(), registration(1, wire.NoBrokerEpoch)); !errors.Is(err, kerr.DuplicateBrokerRegistration) {
		t.Errorf("the late registration: %v, want DUPLICATE_BROKER_REGISTRATION", err)
	}
	if b, _ := c.Image().Broker(1); b.Epoch != epoch || b.Fenced {
		t.Errorf("the broker has epoch %d, fenced %v; want %d, false", b.Epoch, b.Fenced, epoch)
	}
	if again, err := c.RegisterBroker(t.Context(), registration(2, wire.NoBrokerEpoch)); err != nil || again != epoch {
		t.Errorf("its own registration again: epoch %d, %v; want %d", again, err, epoch)
	}
	startBroker(t, c, 3, epoch)
}

func TestReadYourWrites(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	c := openTest(t, testOptions(memFS(), func(d *image.Delta, _ *image.Image) {
		mu.Lock()
		defer mu.Unlock()
		for _, td := range d.Topics {
			seen[td.Name] = true
		}
	}))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	for i := range 20 {
		name := fmt.Sprintf("t%d", i)
		create(t, c, name)
		mu.Lock()
		if !seen[name] {
			t.Errorf("answered before %s was published", name)
		}
		mu.Unlock()
		if _, ok := c.Image().Topic(name); !ok {
			t.Errorf("topic %s is not in the image after the answer", name)
		}
	}
}

// What a real Kafka 4.4 shows: after SIGKILL the leader epoch is two higher and the partition epoch three, the partition
// is recovering from an unclean election; after a clean stop both are two higher. ISR and ELR end as they began.
func TestPartitionAfterRestart(t *testing.T) {
	fs := memFS()
	show := func(c *Controller) string {
		p, _ := c.Image().Partition("t", 0)
		return fmt.Sprintf("leader=%d le=%d pe=%d isr=%v elr=%v last=%v recovering=%v",
			p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.ISR, p.ELR, p.LastKnownELR, p.Recovering)
	}
	check := func(c *Controller, when, want string) {
		t.Helper()
		if got := show(c); got != want {
			t.Errorf("%s:\n got %s\nwant %s", when, got, want)
		}
	}
	restart := func(c *Controller) *Controller {
		t.Helper()
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		return openTest(t, testOptions(fs, nil))
	}
	c := openTest(t, testOptions(fs, nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	create(t, c, "t")
	check(c, "created", "leader=1 le=0 pe=0 isr=[1] elr=[] last=[] recovering=false")

	c = restart(c)
	startBroker(t, c, 2, wire.NoBrokerEpoch)
	check(c, "after SIGKILL", "leader=1 le=2 pe=3 isr=[1] elr=[] last=[] recovering=true")
	c = restart(c)
	epoch := startBroker(t, c, 3, wire.NoBrokerEpoch)
	check(c, "after a second SIGKILL", "leader=1 le=4 pe=6 isr=[1] elr=[] last=[] recovering=true")

	if err := c.ShutDownBroker(t.Context(), 1, epoch); err != nil {
		t.Fatal(err)
	}
	check(c, "shut down", "leader=-1 le=5 pe=7 isr=[] elr=[1] last=[1] recovering=true")
	c = restart(c)
	startBroker(t, c, 4, epoch)
	check(c, "after a clean stop", "leader=1 le=6 pe=8 isr=[1] elr=[] last=[] recovering=true")
}

// P8: an id block is never given twice, whatever is killed when.
func TestProducerIDsAreGivenOnce(t *testing.T) {
	fs := memFS()
	given := map[wire.ProducerID]bool{}
	for life := range 4 {
		c := openTest(t, testOptions(fs, nil))
		epoch := startBroker(t, c, byte(life+1), wire.NoBrokerEpoch)
		for range 3 {
			b, err := c.AllocateProducerIDs(t.Context(), 1, epoch)
			if err != nil || b.Count != 1000 {
				t.Fatalf("allocate = %+v, %v", b, err)
			}
			if given[b.First] || b.First%1000 != 0 {
				t.Errorf("block at %d was given before", b.First)
			}
			given[b.First] = true
		}
		if _, err := c.AllocateProducerIDs(t.Context(), 1, epoch+7); !errors.Is(err, kerr.StaleBrokerEpoch) {
			t.Errorf("allocate with a wrong epoch = %v, want STALE_BROKER_EPOCH", err)
		}
		fs = fs.Crash(memfs.Lose, uint64(life))
		if err := c.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// C15: replaying the log, and restoring a snapshot and replaying the rest, give the state that was published.
func TestStateIsWhatReplayMakes(t *testing.T) {
	fs := memFS()
	c := openTest(t, testOptions(fs, nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	for i := range 30 {
		create(t, c, fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i))
		if i == 15 {
			if err := c.raft.Snapshot().Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := c.DeleteTopics(t.Context(), []DeletedTopic{{Name: "a3"}}); err != nil {
		t.Fatal(err)
	}
	want := c.Image()
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	snap := openTest(t, testOptions(fs, nil))
	// The restart adds a claim; compare all but the position and the claim by undoing them.
	got := snap.Image()
	if got.ControllerEpoch() != want.ControllerEpoch()+1 {
		t.Fatalf("controller epoch %d, want %d", got.ControllerEpoch(), want.ControllerEpoch()+1)
	}
	if d := image.Diff(want, got); !d.Empty() {
		t.Errorf("after snapshot and tail the state differs: %+v", d)
	}
	if err := snap.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	hashes := map[string]bool{}
	for range 3 {
		again := openTest(t, testOptions(fs.Crash(memfs.Keep, 0), nil))
		hashes[stateHash(again.Image())] = true
		if err := again.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if len(hashes) != 1 {
		t.Errorf("three replays gave %d different states", len(hashes))
	}
}

// C7 and the fence: entries of an older epoch, or out of their order, have no effect.
func TestFSMDropsWhatDoesNotFit(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	img := c.Image()
	topic := func(n byte) []coordrec.MetadataRecord {
		return []coordrec.MetadataRecord{&coordrec.TopicRecord{Name: fmt.Sprint("late", n), TopicID: wire.UUID{15: n}}}
	}
	claim := func(e wire.ControllerEpoch) []coordrec.MetadataRecord {
		return []coordrec.MetadataRecord{&coordrec.ClaimControllerRecord{Epoch: e, NodeID: 1}}
	}
	for name, e := range map[string]entry{
		"older epoch":    {epoch: img.ControllerEpoch() - 1, number: img.Entry() + 1, records: topic(1)},
		"newer epoch":    {epoch: img.ControllerEpoch() + 1, number: 1, records: topic(2)},
		"repeated entry": {epoch: img.ControllerEpoch(), number: img.Entry(), records: topic(3)},
		"gap":            {epoch: img.ControllerEpoch(), number: img.Entry() + 2, records: topic(4)},
		"same claim":     {epoch: img.ControllerEpoch(), records: claim(img.ControllerEpoch())},
		"claim too far":  {epoch: img.ControllerEpoch() + 2, records: claim(img.ControllerEpoch() + 2)},
	} {
		f := c.raft.Apply(e.encode(), 0)
		if err := f.Error(); err != nil {
			t.Fatal(err)
		}
		if out := f.Response().(*outcome); !out.dropped {
			t.Errorf("%s was applied: %+v", name, out)
		}
	}
	if got := stateHash(c.committed()); got != stateHash(img) {
		t.Error("the state changed")
	}
	create(t, c, "after")
}

// C5: when the store fails under an entry the answer is "unknown", and the controller ends with the reason.
func TestStoreFailureIsUnknownAndFinal(t *testing.T) {
	ffs := faultfs.New(memFS())
	c, err := Open(t.Context(), testOptions(ffs, nil))
	if err != nil {
		t.Fatal(err)
	}
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	disk := errors.New("disk is broken")
	ffs.Add(faultfs.Rule{Op: faultfs.OpSync, Err: disk})
	_, err = c.CreateTopics(t.Context(), []NewTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, kerr.RequestTimedOut) {
		t.Errorf("answer = %v, want REQUEST_TIMED_OUT", err)
	}
	if err := c.Run(t.Context()); !errors.Is(err, disk) {
		t.Errorf("Run = %v, want the disk's error", err)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Errorf("close: %v", err)
	}
	_, err = c.CreateTopics(t.Context(), []NewTopic{{Name: "u", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, kerr.NotController) {
		t.Errorf("answer after the end = %v, want NOT_CONTROLLER", err)
	}
}

// A term or vote that cannot be written, be it only for want of space, ends the controller with the reason,
// and harms nothing.
func TestVoteThatCannotBeWritten(t *testing.T) {
	for _, rule := range []faultfs.Rule{
		{Op: faultfs.OpCreate, Path: "VOTE*", Err: syscall.EMFILE},
		{Op: faultfs.OpWrite, Path: "VOTE*", Err: syscall.ENOSPC},
		{Op: faultfs.OpSync, Path: "VOTE*", Err: syscall.EIO},
	} {
		t.Run(rule.Err.Error(), func(t *testing.T) {
			ffs := faultfs.New(memFS())
			c, err := Open(t.Context(), testOptions(ffs, nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Close(context.Background()); err != nil {
				t.Fatalf("close: %v", err)
			}
			ffs.Add(rule)
			if c, err := Open(t.Context(), testOptions(ffs, nil)); !errors.Is(err, rule.Err) {
				t.Fatalf("open = %v, %v, want %v", c, err, rule.Err)
			}
			ffs.Clear()
			after := openTest(t, testOptions(ffs, nil)) // nothing was harmed
			startBroker(t, after, 1, wire.NoBrokerEpoch)
			create(t, after, "after")
		})
	}
}

// C20: a record of a later release ends a running controller without being skipped, and is refused at start.
func TestUnknownRecord(t *testing.T) {
	fs := memFS()
	c, err := Open(t.Context(), testOptions(fs, nil))
	if err != nil {
		t.Fatal(err)
	}
	img := c.Image()
	e := entry{epoch: img.ControllerEpoch(), number: img.Entry() + 1}
	data := append(e.encode(), 4, 1, 99, 0, 0) // one record of type 99
	if err := c.raft.Apply(data, 0).Error(); err != nil {
		t.Fatal(err)
	}
	var unknown *coordrec.UnknownRecordError
	if err := c.Run(t.Context()); !errors.As(err, &unknown) || unknown.Type != 99 {
		t.Errorf("Run = %v, want a complaint about type 99", err)
	}
	if err := c.raft.Snapshot().Error(); err == nil {
		t.Error("a snapshot was taken of a state that misses a record")
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), testOptions(fs, nil)); !errors.As(err, &unknown) {
		t.Errorf("open = %v, want a refusal", err)
	}
}

func TestOtherNodesStoreIsRefused(t *testing.T) {
	fs := memFS()
	c := openTest(t, testOptions(fs, nil))
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	o := testOptions(fs, nil)
	o.NodeID = 2
	if _, err := Open(t.Context(), o); err == nil {
		t.Error("another node id took the store over")
	}
}

func TestManyAtOnceMakeOneTopic(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	var wg sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for range 50 {
		wg.Go(func() {
			res, err := c.CreateTopics(t.Context(), []NewTopic{{Name: "one", Partitions: -1, ReplicationFactor: -1}}, false)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				codes[err.Error()]++
			case res[0].Err != nil:
				codes[res[0].Err.Code.Message]++
			default:
				codes["created"]++
			}
		})
	}
	wg.Wait()
	if codes["created"] != 1 || codes["TOPIC_ALREADY_EXISTS"] != 49 {
		t.Errorf("answers = %v, want 1 created and 49 TOPIC_ALREADY_EXISTS", codes)
	}
}

func BenchmarkStartToLeader(b *testing.B) {
	for b.Loop() {
		c, err := Open(b.Context(), testOptions(memFS(), nil))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := c.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

func BenchmarkCreateTopic(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			dir := b.TempDir()
			o := testOptions(vfs.OS{}, nil)
			o.Dir = dir + "/meta"
			c := openTest(b, o)
			startBroker(b, c, 1, wire.NoBrokerEpoch)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				names := make([]string, batch)
				for i := range names {
					names[i] = fmt.Sprintf("topic-%d", n)
					n++
				}
				create(b, c, names...)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "topics/s")
		})
	}
}

// An entry of more than 8 MiB is refused before it is proposed, and nothing of it happens.
func TestTooLargeRequestIsRefused(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	value := strings.Repeat("9", maxConfigValue)
	var req []NewTopic
	for i := range 300 {
		req = append(req, NewTopic{
			Name: fmt.Sprintf("t%d", i), Partitions: 1, ReplicationFactor: 1,
			Configs: []TopicConfig{{Name: "retention.ms", Value: &value}},
		})
	}
	if _, err := c.CreateTopics(t.Context(), req, false); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("answer = %v, want POLICY_VIOLATION", err)
	}
	if got := c.Image().NumTopics(); got != 0 {
		t.Errorf("%d topics were created", got)
	}
	many := []NewTopic{{Name: "many", Partitions: maxPartitionsPerRequest + 1, ReplicationFactor: 1}}
	if _, err := c.CreateTopics(t.Context(), many, false); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("answer = %v, want POLICY_VIOLATION", err)
	}
	create(t, c, "after")
}

// What a client stops waiting for is unknown; what was never decided did not happen.
func TestCancelledRequests(t *testing.T) {
	c := openTest(t, testOptions(memFS(), nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, kerr.RequestTimedOut) {
		t.Errorf("answer = %v, want REQUEST_TIMED_OUT", err)
	}
	create(t, c, "later")
	if _, ok := c.Image().Topic("t"); ok {
		t.Error("a request whose client was gone before it was decided was carried out")
	}
}

// A deleted topic's id stays known until its replicas are gone, over restarts and snapshots.
func TestRemovedTopicsAreRemembered(t *testing.T) {
	fs := memFS()
	c := openTest(t, testOptions(fs, nil))
	startBroker(t, c, 1, wire.NoBrokerEpoch)
	create(t, c, "t")
	topic, _ := c.Image().Topic("t")
	if _, err := c.DeleteTopics(t.Context(), []DeletedTopic{{ID: topic.ID}}); err != nil {
		t.Fatal(err)
	}
	create(t, c, "t")
	if err := c.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	c = openTest(t, testOptions(fs, nil))
	again, _ := c.Image().Topic("t")
	if !c.Image().WasRemoved(topic.ID) || again.ID == topic.ID {
		t.Errorf("removed id known: %v, new topic has the old id: %v", c.Image().WasRemoved(topic.ID), again.ID == topic.ID)
	}
	if err := c.ReplicasRemoved(t.Context(), []wire.UUID{topic.ID}); err != nil {
		t.Fatal(err)
	}
	if c.Image().WasRemoved(topic.ID) {
		t.Error("the id is still known after its replicas were reported gone")
	}
}
