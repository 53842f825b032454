package loop

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire/compress"
)

// The partitions of a run: some of a topic of records, the one of the group coordinator, and, in runs with transactions,
// the one of theirs.
const (
	dataTopic        = "t"
	dataPartitions   = 2
	offsetsPartition = dataPartitions
	txnPartition     = dataPartitions + 1
)

// Options is the shape of a run.
type Options struct {
	Nodes   int
	MinISR  int
	FSync   replica.FSync
	Unclean bool          // unclean.leader.election.enable, and asked for
	Txns    bool          // there are transactional producers, and readers of what is committed
	Timeout time.Duration // of transactions; 0: drawn
	Pause   time.Duration // between two batches of a producer, on average
	Writes  time.Duration // until when producers write
	Faults  time.Duration // until when there are faults
	End     time.Duration
}

// partitions is how many there are.
func (o Options) partitions() int {
	if o.Txns {
		return txnPartition + 1
	}
	return offsetsPartition + 1
}

// OptionsOf draws the shape of a seed's run: 60 virtual seconds, the last 20 without faults. Of sixteen seeds in a row
// seven carry transactions; an unclean election loses what an end of a transaction rests on.
func OptionsOf(seed uint64) Options {
	o := Options{Nodes: 3, MinISR: 2, Pause: 120 * time.Millisecond, Writes: 42 * time.Second, Faults: 40 * time.Second, End: 60 * time.Second}
	switch seed % 8 {
	case 1:
		o.FSync = replica.FSyncAlways
	case 3:
		o.Nodes = 5
	case 4:
		o.MinISR, o.FSync = 1, replica.FSyncAlways
	case 5:
		o.MinISR = 1
	case 6:
		o.Unclean = true
	case 7:
		o.FSync, o.MinISR = replica.FSyncNever, 2
	}
	o.Txns = seed/8%2 == 1 && !o.Unclean
	return o
}

// Result says what a run did.
type Result struct {
	Digest           uint64 // of every event, the logs and the metadata at the end
	Events           int
	Faults           int
	Acks             int // batches acknowledged with acks=all
	Reads            int // batches read by consumers
	Commits          int // offsets committed
	Txns             int // transactions whose producer was told that they are committed
	Aborts           int // or aborted
	Fenced           int // incarnations of producers that were told that they are fenced
	Elections        int // times that a replica began to lead
	UncleanElections int
	Cuts             int // truncations
	Controllers      int // controller epochs
	Err              error
	History          string // the last events before Err
}

// Add takes the counts of another run.
func (r *Result) Add(o Result) {
	r.Events += o.Events
	r.Faults += o.Faults
	r.Acks += o.Acks
	r.Reads += o.Reads
	r.Commits += o.Commits
	r.Txns += o.Txns
	r.Aborts += o.Aborts
	r.Fenced += o.Fenced
	r.Elections += o.Elections
	r.UncleanElections += o.UncleanElections
	r.Cuts += o.Cuts
	r.Controllers += o.Controllers
}

// String gives the counts.
func (r Result) String() string {
	return fmt.Sprintf("%d events, %d faults, %d batches acknowledged, %d read, %d offsets committed, "+
		"%d transactions committed, %d aborted, %d producers fenced, %d leaderships begun, %d unclean elections, %d truncations, %d controller epochs",
		r.Events, r.Faults, r.Acks, r.Reads, r.Commits, r.Txns, r.Aborts, r.Fenced, r.Elections, r.UncleanElections, r.Cuts, r.Controllers)
}

// cluster is one run.
type cluster struct {
	*sched
	opts       Options
	net        *network
	meta       *meta
	nodes      []*node
	clients    []*actor
	producers  []*producer
	consumers  []*consumer
	members    []*member
	writers    []*txnProducer
	check      *checker
	nemesis    *nemesis
	configs    configs
	logConfig  *log.Config
	codecs     *compress.Codecs
	logger     *slog.Logger
	nextRecord uint64
}

// Run is one run of a seed.
func Run(seed uint64, o Options) Result {
	c := newCluster(seed, o)
	c.run(o.End)
	if c.err == nil {
		c.check.settled(o.End - o.Faults)
	}
	c.mix(int64(c.meta.committed().Offset()))
	res := Result{Digest: c.digest, Events: c.count, Acks: c.check.acks, Reads: c.check.reads, Commits: c.check.commits,
		Txns: c.check.txns.commits, Aborts: c.check.txns.aborts, Fenced: c.check.txns.fenced,
		Elections: c.check.elections, Cuts: c.check.cuts, UncleanElections: c.check.lostUnclean,
		Controllers: int(c.meta.committed().ControllerEpoch()), Err: c.err}
	if c.nemesis != nil {
		res.Faults = c.nemesis.faults
	}
	if c.err != nil {
		res.Err = fmt.Errorf("seed %d: %w", seed, c.err)
		res.History = c.history()
	}
	return res
}

// newCluster makes a cluster whose nodes are about to boot.
func newCluster(seed uint64, o Options) *cluster {
	c := &cluster{sched: newSched(seed), opts: o, codecs: compress.New(), logger: slog.New(slog.DiscardHandler), nextRecord: 1}
	c.configs = configs{minISR: strconv.Itoa(o.MinISR), unclean: strconv.FormatBool(o.Unclean)}
	cfg := log.DefaultConfig()
	cfg.SegmentBytes, cfg.SegmentIndexBytes, cfg.IndexIntervalBytes = 16<<10, 4<<10, 256
	cfg.RetentionAge, cfg.TimestampAfterMax = -1, log.Forever
	cfg.MinInSyncReplicas = o.MinISR
	c.logConfig = cfg
	c.net = &network{sched: c.sched}
	c.meta = newMeta(c)
	c.check = newChecker(c)
	for id := 1; id <= o.Nodes; id++ {
		c.nodes = append(c.nodes, newNode(c, id))
	}
	for _, n := range c.nodes {
		c.after(c.between(0, 200*time.Millisecond), n.boot)
	}
	c.after(0, c.meta.tick)
	c.after(time.Second, c.createTopics)
	return c
}

func (c *cluster) node(id int) *node { return c.nodes[id-1] }

// anyNode draws a node, whatever its state.
func (c *cluster) anyNode() *node { return c.nodes[c.rng.IntN(len(c.nodes))] }

// flushTime is how long a flush takes.
func (c *cluster) flushTime() time.Duration {
	if c.chance(30) {
		return c.between(5*time.Millisecond, 300*time.Millisecond)
	}
	return c.between(200*time.Microsecond, 8*time.Millisecond)
}

// createTopics asks until the topics are there, and then lets everything begin.
func (c *cluster) createTopics() {
	again := func() { c.after(200*time.Millisecond, c.createTopics) }
	active := 0
	for b := range c.meta.committed().Brokers() {
		if b.Active() {
			active++
		}
	}
	var k *ctrl
	for _, v := range c.meta.voters() {
		if v.ctrl != nil && v.ctrl.active {
			k = v.ctrl
		}
	}
	if k == nil || active < len(c.nodes) {
		again()
		return
	}
	k.request(func(core *raftctl.Core) ([]byte, any, error) {
		topics := []raftctl.NewTopic{
			{Name: dataTopic, Partitions: dataPartitions, ReplicationFactor: 3},
			{Name: image.OffsetsTopic, Partitions: 1, ReplicationFactor: 3},
		}
		if c.opts.Txns {
			topics = append(topics, raftctl.NewTopic{Name: image.TxnStateTopic, Partitions: 1, ReplicationFactor: 3})
		}
		data, results, err := core.CreateTopics(topics)
		for _, r := range results {
			if r.Err != nil {
				c.violated("create topics: %v", r.Err)
			}
		}
		return data, results, err
	}, func(r any) {
		if r.(outcome).err != nil {
			again()
			return
		}
		c.begin()
	})
}

func (c *cluster) begin() {
	for i := range dataPartitions {
		c.addProducer(i, -1, true)
		c.addConsumer(i)
	}
	c.addProducer(0, -1, true)
	c.addProducer(1, 1, true)
	c.addProducer(0, -1, false)
	c.addConsumer(0)
	for range 3 {
		c.addMember()
	}
	if c.opts.Txns {
		c.addTransactions()
	}
	c.nemesis = newNemesis(c)
	c.after(c.between(time.Second, 3*time.Second), c.nemesis.tick)
	c.after(c.opts.Faults-c.now, c.nemesis.heal)
}
