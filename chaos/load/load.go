package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/sim/eos"
	"github.com/kajamq/kaja/sim/history"
)

// Names of the topics.
const (
	Plain = "plain" // of idempotent producers; the group reads it
	Once  = "once"  // of a producer with acks=1
	Probe = "probe" // partition i has node i+1 as its first replica
)

// Config is how much load there is.
type Config struct {
	Seeds      []string // addresses
	Nodes      int
	Seed       uint64
	Partitions int32 // of Plain
	Rate       int   // records a second to Plain
	ProbeEvery time.Duration
	Extras     bool // groups, transactions, acks=1 and readers besides
}

// Load is a running workload.
type Load struct {
	cfg    Config
	Plain  *history.History
	Probes *Probes
	once   *history.History
	group  *group
	follow []*follower
	eos    *eos.Load
	told   *eos.History

	stop    chan struct{}
	cancel  context.CancelFunc
	workers sync.WaitGroup // end with stop
	readers sync.WaitGroup // end with cancel
	mu      sync.Mutex
	errs    []error
	lost    int // of Plain and Probe, counted by Check
	twice   int
}

// client makes a client that gives up a silent broker soon, and no record ever: not even where a process ends between the first request
// of a connection and its answer, which this client takes for a wrong password if it is not told.
func (l *Load) client(opts ...kgo.Opt) (*kgo.Client, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(l.cfg.Seeds...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(0), kgo.DialTimeout(500 * time.Millisecond), kgo.RequestTimeoutOverhead(500 * time.Millisecond),
		kgo.ProduceRequestTimeout(time.Second), kgo.MetadataMinAge(20 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(n int) time.Duration { return time.Duration(min(10*n, 50)) * time.Millisecond }),
		kgo.RequestRetries(100_000), kgo.RecordRetries(1 << 30), kgo.MaxBufferedRecords(200_000), kgo.AlwaysRetryEOF(),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return cl, nil
}

// Admin makes a client for questions.
func (l *Load) Admin() (*kadm.Client, error) {
	cl, err := l.client(kgo.RequestRetries(20), kgo.RetryTimeout(3*time.Second))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(cl), nil
}

// Start makes the topics and begins.
func Start(ctx context.Context, cfg Config) (*Load, error) {
	l := &Load{cfg: cfg, Plain: history.New(), once: history.New(), stop: make(chan struct{}), told: eos.NewHistory()}
	l.Plain.Padding, l.once.Padding = 100, 100
	l.Probes = newProbes(cfg.Nodes)
	l.group = newGroup(cfg.Partitions)
	l.eos = &eos.Load{
		Dial: (&net.Dialer{}).DialContext, Seeds: cfg.Seeds, Seed: cfg.Seed, Records: 1 << 40, Until: l.stop, Producers: 4, Readers: 1, Batch: 10,
		Patience: 90 * time.Second, Topics: map[string]int32{"eos-a": 3, "eos-b": 2}, Replication: int16(min(cfg.Nodes, 3)),
		Client: l.client,
	}
	if err := l.topics(ctx); err != nil {
		return nil, err
	}
	ctx, l.cancel = context.WithCancel(ctx)
	produce, stopProducing := context.WithCancel(ctx)
	go func() {
		<-l.stop
		stopProducing()
	}()
	if err := l.begin(ctx, produce); err != nil {
		l.cancel()
		return nil, err
	}
	return l, nil
}

// begin starts the workers; those that produce end with produce, those that read with ctx.
func (l *Load) begin(ctx, produce context.Context) error {
	for part := range int32(l.cfg.Nodes) {
		l.workers.Go(func() { l.note(l.Probes.run(produce, part, l.cfg.Seeds, l.cfg.ProbeEvery)) })
	}
	const producers = 4
	for i := range producers {
		if err := l.produce(produce, l.Plain, Plain, fmt.Sprintf("p%d", i), time.Second*producers/time.Duration(l.cfg.Rate)); err != nil {
			return err
		}
	}
	if !l.cfg.Extras {
		return nil
	}
	if err := l.produce(produce, l.once, Once, "o", 20*time.Millisecond, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite()); err != nil {
		return err
	}
	for _, topic := range []string{Plain, Once, Probe} {
		f := newFollower(topic)
		l.follow = append(l.follow, f)
		l.readers.Go(func() { l.note(f.run(ctx, l.client)) })
	}
	for i := range groupMembers {
		l.readers.Go(func() { l.note(l.group.member(ctx, l.client, i, l.cfg.Seed)) })
	}
	l.workers.Go(func() {
		h := l.eos.Run(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told = h
	})
	return nil
}

// produce starts a producer with a client of its own.
func (l *Load) produce(ctx context.Context, h *history.History, topic, name string, pause time.Duration, opts ...kgo.Opt) error {
	cl, err := l.client(append(opts, kgo.ClientID(name), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...)
	if err != nil {
		return err
	}
	l.workers.Go(func() {
		defer cl.Close()
		l.note(h.Produce(ctx, cl, topic, name, pause))
	})
	return nil
}

func (l *Load) note(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, err)
}

// Acked is how many records were acknowledged so far, transactions and acks=1 apart.
func (l *Load) Acked() int { return l.Plain.Acked() + l.Probes.Acked() }

// topics makes the topics, and insists until there are enough nodes for them.
func (l *Load) topics(ctx context.Context) error {
	ad, err := l.Admin()
	if err != nil {
		return err
	}
	defer ad.Close()
	rf := int16(min(l.cfg.Nodes, 3))
	insist := func(make func() error) error {
		for {
			err := make()
			if err == nil || errors.Is(err, kerr.TopicAlreadyExists) {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("make the topics: %w", err)
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	for topic, n := range map[string]int32{Plain: l.cfg.Partitions, Once: 3, "eos-a": 3, "eos-b": 2} {
		if err := insist(func() error {
			_, err := ad.CreateTopic(ctx, n, rf, nil, topic)
			return err
		}); err != nil {
			return err
		}
	}
	if err := insist(func() error { return l.makeProbes(ctx, ad, rf) }); err != nil {
		return err
	}
	return insist(func() error { return l.known(ctx) })
}

// known asks each node for the topics: a node that has not heard of one yet would tell a producer that there is none.
func (l *Load) known(ctx context.Context) error {
	cl, err := l.client(kgo.RequestRetries(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	for _, topic := range []string{Plain, Once, Probe, "eos-a", "eos-b"} {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
	}
	for _, node := range cl.SeedBrokers() {
		got, err := node.Request(ctx, req)
		if err != nil {
			return fmt.Errorf("ask each node for the topics: %w", err)
		}
		for _, t := range got.(*kmsg.MetadataResponse).Topics {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
				return fmt.Errorf("ask each node for the topics: %w", err)
			}
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("ask each node for the topics: %w", err)
				}
			}
		}
	}
	return nil
}

// Whole reports whether every partition has a leader and all its replicas in sync; what is missing, otherwise.
func Whole(ctx context.Context, ad *kadm.Client) (missing string, err error) {
	m, err := ad.Metadata(ctx)
	if err != nil {
		return "", fmt.Errorf("ask for metadata: %w", err)
	}
	for _, t := range m.Topics.Sorted() {
		for _, p := range t.Partitions.Sorted() {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) || len(p.Replicas) == 0 {
				return fmt.Sprintf("%s/%d: leader %d, ISR %v of %v", t.Topic, p.Partition, p.Leader, p.ISR, p.Replicas), nil
			}
		}
	}
	return "", nil
}

// Stop lets producers send what they have and end, lets readers catch up, and ends them; an error says who did not.
func (l *Load) Stop(patience time.Duration) error {
	close(l.stop)
	done := make(chan struct{})
	go func() {
		l.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		l.cancel()
		return fmt.Errorf("producers are not done %v after the last fault was healed", patience)
	}
	return nil
}

// Check reads everything that is there and compares it with what everybody was told and saw.
func (l *Load) Check(ctx context.Context) error {
	defer l.cancel()
	var errs []error
	logs := map[string]map[int32][]history.Read{}
	for _, topic := range []string{Plain, Probe, Once} {
		if topic == Once && !l.cfg.Extras {
			continue
		}
		log, err := history.ReadTopic(ctx, l.client, topic)
		if err != nil {
			return fmt.Errorf("read %s in the end: %w", topic, err)
		}
		logs[topic] = log
	}
	l.tally(logs)
	errs = append(errs, named(Plain, l.Plain.Check(logs[Plain])), named(Probe, l.Probes.check(logs[Probe])))
	if n := l.Plain.Failed(); n > 0 {
		errs = append(errs, fmt.Errorf("%d records were given up, although nobody may: %v", n, l.Plain.Failures(3)))
	}
	if l.cfg.Extras {
		for _, f := range l.follow {
			errs = append(errs, named("reader of "+f.topic, f.check(ctx, logs[f.topic])))
		}
		errs = append(errs, named("group", l.group.check(ctx, logs[Plain])), named("transactions", l.eos.Check(ctx, l.told)))
	}
	l.cancel()
	l.readers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(append(errs, l.errs...)...)
}

// tally counts what is lost and what is there twice, of what has to be acknowledged by all in sync.
func (l *Load) tally(logs map[string]map[int32][]history.Read) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for topic, h := range map[string]*history.History{Plain: l.Plain, Probe: l.Probes.told} {
		lost, twice := h.Tally(logs[topic])
		l.lost += lost
		l.twice += twice
	}
}

func named(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Counts is how much was done.
type Counts struct {
	Acked        int        `json:"acknowledged"`
	Lost         int        `json:"acknowledged_and_lost"`
	Twice        int        `json:"there_twice"`
	Failed       int        `json:"answered_by_an_error"`
	Once         int        `json:"acknowledged_by_the_leader_alone"`
	Followed     int        `json:"followed"`
	Commits      int        `json:"offset_commits"`
	Rebalances   int        `json:"group_assignments"`
	Transactions eos.Counts `json:"transactions"`
}

// Counts is how much was done so far; transactions, and what is lost or there twice, at the end only.
func (l *Load) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Counts{Acked: l.Acked(), Lost: l.lost, Twice: l.twice, Failed: l.Plain.Failed() + l.Probes.told.Failed(), Once: l.once.Acked(), Transactions: l.told.Counts()}
	for _, f := range l.follow {
		c.Followed += f.count()
	}
	c.Commits, c.Rebalances = l.group.counts()
	return c
}

// Topics are the topics that were written to, whose replicas have to be equal in the end.
func (l *Load) Topics() []string {
	if !l.cfg.Extras {
		return []string{Plain, Probe}
	}
	return []string{Plain, Once, Probe, "eos-a", "eos-b"}
}

// Asker makes a client for single requests.
func (l *Load) Asker() (*kgo.Client, error) { return l.client(kgo.RequestRetries(3)) }
