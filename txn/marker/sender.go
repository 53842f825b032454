package marker

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
)

const (
	// maxPartitions bounds the markers of one request.
	maxPartitions = 1000
	// maxRequests bounds the requests under way to one broker.
	maxRequests = 5
	// DefaultRetry is the wait before a marker is tried again.
	DefaultRetry = 100 * time.Millisecond
	// markersVersion is the version of the WriteTxnMarkers requests: the one that tells the version of the transaction.
	markersVersion = 2
)

// Job is one decided transaction.
type Job struct {
	Shard      wire.PartitionID // of __transaction_state
	Epoch      wire.LeaderEpoch // of the shard's leader: the coordinator epoch of the markers
	TxnID      string
	Producer   state.Producer
	Commit     bool
	Version    state.Version
	Partitions []wire.TopicPartition
	// Done is called once, when all markers are there, from any goroutine; not after Cancel.
	Done func()
}

// Options configure a Sender. Every field is required but Retry and Sleep.
type Options struct {
	// Leader is the broker that leads a partition now, NoBroker while none does; exists is false when the partition was
	// deleted.
	Leader func(tp wire.TopicPartition) (leader wire.BrokerID, exists bool)
	// Write brings a request to a broker. done is called exactly once, possibly before Write returns; a nil response
	// means that nobody knows what became of it.
	Write func(to wire.BrokerID, req *kmsg.WriteTxnMarkersRequest, done func(*kmsg.WriteTxnMarkersResponse))
	// BrokerEpoch is that of this broker's registration.
	BrokerEpoch func() wire.BrokerEpoch
	// Retry is the wait before a marker is tried again; 0 is DefaultRetry.
	Retry  time.Duration
	Logger *slog.Logger
}

// Sender brings markers to partitions. Safe for concurrent use.
type Sender struct {
	o  Options
	wg sync.WaitGroup

	mu     sync.Mutex
	jobs   map[jobKey]*job
	queues map[wire.BrokerID]*queue
	lost   map[wire.BrokerID]int64 // requests that nobody knows what became of
	later  []item                  // wait for the retry timer
	timer  *time.Timer
	closed bool
	stop   chan struct{} // closed with closed
}

type jobKey struct {
	shard wire.PartitionID
	id    string
}

// job is a Job on its way. Guarded by Sender.mu.
type job struct {
	Job
	missing   int // partitions without their marker
	cancelled bool
	since     time.Time
}

// item is one partition of a job.
type item struct {
	job   *job
	tp    wire.TopicPartition
	tries int
}

// queue is what one broker is to be sent. Guarded by Sender.mu.
type queue struct {
	items    []item
	requests int // under way
}

// New makes a sender without jobs.
func New(o Options) *Sender {
	if o.Retry <= 0 {
		o.Retry = DefaultRetry
	}
	return &Sender{o: o, jobs: make(map[jobKey]*job), queues: make(map[wire.BrokerID]*queue), lost: make(map[wire.BrokerID]int64), stop: make(chan struct{})}
}

// Send begins a job. A job of the same transactional id that is still under way is given up for it.
func (s *Sender) Send(j Job) {
	n := &job{Job: j, missing: len(j.Partitions), since: time.Now()}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	key := jobKey{j.Shard, j.TxnID}
	if old := s.jobs[key]; old != nil {
		old.cancelled = true
		s.forgetLocked()
	}
	if n.missing == 0 {
		delete(s.jobs, key)
		s.mu.Unlock()
		j.Done()
		return
	}
	s.jobs[key] = n
	s.mu.Unlock()
	items := make([]item, len(j.Partitions))
	for i, tp := range j.Partitions {
		items[i] = item{job: n, tp: tp}
	}
	s.route(items)
}

// Cancel gives up the jobs of a shard that were begun under epoch or before.
func (s *Sender) Cancel(shard wire.PartitionID, epoch wire.LeaderEpoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := len(s.jobs)
	for key, j := range s.jobs {
		if key.shard == shard && j.Epoch <= epoch {
			j.cancelled = true
			delete(s.jobs, key)
		}
	}
	if len(s.jobs) < jobs {
		s.forgetLocked()
	}
}

// forgetLocked takes what was given up out of the queues, which a broker that does not answer would keep there: so they
// hold no more than the partitions of the jobs under way.
func (s *Sender) forgetLocked() {
	givenUp := func(it item) bool { return it.job.cancelled }
	for _, q := range s.queues {
		q.items = slices.DeleteFunc(q.items, givenUp)
	}
	s.later = slices.DeleteFunc(s.later, givenUp)
}

// Pending is the number of jobs under way, and since when the oldest of them is; zero if there is none.
func (s *Sender) Pending() (jobs int, oldest time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if oldest.IsZero() || j.since.Before(oldest) {
			oldest = j.since
		}
	}
	return len(s.jobs), oldest
}

// Close gives up every job and joins the goroutines. The answers to requests under way are ignored.
func (s *Sender) Close() {
	s.mu.Lock()
	if !s.closed {
		close(s.stop)
	}
	s.closed = true
	for key, j := range s.jobs {
		j.cancelled = true
		delete(s.jobs, key)
	}
	if s.timer != nil && s.timer.Stop() {
		s.wg.Done()
	}
	s.timer, s.later = nil, nil
	s.mu.Unlock()
	s.wg.Wait()
}

// route puts items into the queues of their leaders. What has no leader waits; what does not exist is done.
func (s *Sender) route(items []item) {
	type place struct {
		leader wire.BrokerID
		exists bool
	}
	places := make([]place, len(items))
	for i, it := range items {
		places[i].leader, places[i].exists = s.o.Leader(it.tp)
	}
	var finished []*job
	touched := map[wire.BrokerID]*queue{}
	s.mu.Lock()
	for i, it := range items {
		to := places[i].leader
		switch {
		case s.closed || it.job.cancelled:
		case !places[i].exists:
			finished = s.doneLocked(it, finished)
		case to == wire.NoBroker:
			s.laterLocked(it)
		default:
			q := s.queues[to]
			if q == nil {
				q = &queue{}
				s.queues[to] = q
			}
			q.items = append(q.items, it)
			touched[to] = q
		}
	}
	for to, q := range touched {
		if q.requests < maxRequests {
			q.requests++
			s.wg.Go(func() { s.drain(to, q) })
		}
	}
	s.mu.Unlock()
	for _, j := range finished {
		j.Done()
	}
}

// doneLocked counts a partition of a job; a job whose last one it is goes to finished.
func (s *Sender) doneLocked(it item, finished []*job) []*job {
	j := it.job
	j.missing--
	if j.missing > 0 || j.cancelled {
		return finished
	}
	delete(s.jobs, jobKey{j.Shard, j.TxnID})
	return append(finished, j)
}

// laterLocked sets an item aside until the retry timer.
func (s *Sender) laterLocked(it item) {
	it.tries++
	s.later = append(s.later, it)
	if s.timer != nil {
		return
	}
	s.wg.Add(1)
	s.timer = time.AfterFunc(s.o.Retry, func() {
		defer s.wg.Done()
		s.mu.Lock()
		items := s.later
		s.later, s.timer = nil, nil
		s.mu.Unlock()
		s.route(items)
	})
}

// drain sends what is queued for one broker, a request at a time, until nothing is left.
func (s *Sender) drain(to wire.BrokerID, q *queue) {
	for {
		s.mu.Lock()
		batch := s.takeLocked(q)
		if len(batch) == 0 || s.closed {
			if q.requests--; q.requests == 0 && len(q.items) == 0 {
				delete(s.queues, to)
			}
			s.mu.Unlock()
			return
		}
		attempt := Attempt{s.o.BrokerEpoch(), s.lost[to]}
		s.mu.Unlock()
		answered := make(chan *kmsg.WriteTxnMarkersResponse, 1)
		req := request(batch)
		attempt.put(req)
		s.o.Write(to, req, func(resp *kmsg.WriteTxnMarkersResponse) { answered <- resp })
		select {
		case resp := <-answered:
			s.settle(to, batch, resp)
		case <-s.stop:
		}
	}
}

// takeLocked takes the next items that are still wanted.
func (s *Sender) takeLocked(q *queue) []item {
	var batch []item
	n := 0
	for _, it := range q.items {
		if len(batch) == maxPartitions {
			break
		}
		n++
		if !it.job.cancelled {
			batch = append(batch, it)
		}
	}
	q.items = q.items[n:]
	return batch
}

// request makes one request of items, which are in the order of their jobs.
func request(batch []item) *kmsg.WriteTxnMarkersRequest {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = markersVersion
	var last *job
	for _, it := range batch {
		j := it.job
		if j != last {
			m := kmsg.NewWriteTxnMarkersRequestMarker()
			m.ProducerID, m.ProducerEpoch, m.Committed = int64(j.Producer.ID), int16(j.Producer.Epoch), j.Commit
			m.CoordinatorEpoch, m.TransactionVersion = int32(j.Epoch), int8(j.Version)
			req.Markers = append(req.Markers, m)
			last = j
		}
		m := &req.Markers[len(req.Markers)-1]
		if n := len(m.Topics); n == 0 || m.Topics[n-1].Topic != it.tp.Topic {
			t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
			t.Topic = it.tp.Topic
			m.Topics = append(m.Topics, t)
		}
		t := &m.Topics[len(m.Topics)-1]
		t.Partitions = append(t.Partitions, int32(it.tp.Partition))
	}
	return req
}

// settle takes the answer to a request.
func (s *Sender) settle(to wire.BrokerID, batch []item, resp *kmsg.WriteTxnMarkersResponse) {
	codes := codes(resp)
	var again []item
	var finished []*job
	s.mu.Lock()
	if resp == nil {
		s.lost[to]++ // it may arrive later still: after what is sent in its place it is not to be taken
	}
	for _, it := range batch {
		code, ok := codes[answerKey{it.job.Producer.ID, it.tp}]
		if !ok {
			code = kerr.UnknownServerError.Code
		}
		switch code {
		case 0:
			finished = s.doneLocked(it, finished)
		case kerr.InvalidProducerEpoch.Code:
			// The partition knows a later epoch, so this transaction is not open there and cannot be opened again.
			s.o.Logger.Warn("marker is older than the partition's producer epoch", "txn_id", it.job.TxnID,
				"topic", it.tp.Topic, "partition", it.tp.Partition, "producer_id", it.job.Producer.ID)
			finished = s.doneLocked(it, finished)
		default:
			again = append(again, it)
		}
	}
	for _, it := range again {
		if s.closed || it.job.cancelled {
			continue
		}
		if it.tries == 100 {
			s.o.Logger.Warn("marker is not taken", "txn_id", it.job.TxnID, "topic", it.tp.Topic, "partition", it.tp.Partition,
				"broker", to, "code", codes[answerKey{it.job.Producer.ID, it.tp}])
		}
		s.laterLocked(it)
	}
	s.mu.Unlock()
	for _, j := range finished {
		j.Done()
	}
}

type answerKey struct {
	id wire.ProducerID
	tp wire.TopicPartition
}

func codes(resp *kmsg.WriteTxnMarkersResponse) map[answerKey]int16 {
	out := make(map[answerKey]int16)
	if resp == nil {
		return out
	}
	for i := range resp.Markers {
		m := &resp.Markers[i]
		for j := range m.Topics {
			t := &m.Topics[j]
			for _, p := range t.Partitions {
				out[answerKey{wire.ProducerID(m.ProducerID), wire.TopicPartition{Topic: t.Topic, Partition: wire.PartitionID(p.Partition)}}] = p.ErrorCode
			}
		}
	}
	return out
}
