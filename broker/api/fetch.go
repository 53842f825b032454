package api

import (
	"context"
	"errors"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch, key 1, versions 4-18.
//
//   - v5: log start offset. v7 (KIP-227): sessions (fetch_session.go). v9 (KIP-320): leader epochs. v10: zstd. v11
//     (KIP-392): racks; no replica but the leader is preferred. v12: last fetched epoch and diverging epoch. v13
//     (KIP-516): topic ids. v16 (KIP-951): the leader with 6 and 74.
//   - A fetch waits for min bytes, at most max wait, unless a partition could not be read. A partition that the cluster
//     does not have is answered with the others and ends no wait.
//   - The first batch of the first partition that has data comes whole however small the limits are (KIP-74).
//   - A fetch as replica -2 is a tool's that compares replicas: from v11 on any replica answers, as to any consumer in Kafka (KIP-392).
//   - A fetch as a replica is taken only on a connection that has proven to be that broker's; any other is closed. It
//     reads up to the log end, and tells the leader how far the replica is (v15, KIP-903: in which of its lives).
//
// Errors: 1, 2, 3, 6, 56 (6 up to v5), 74, 75, 76, 100, 103; at the top 70, 71, 106, and for replicas 77.

// errFollowerFetch closes the connection of somebody who claims to be a broker and has not proven it.
var errFollowerFetch = errors.New("fetch as a replica without the proof of a broker")

type fetch struct {
	images    imageSource
	parts     replicaFinder
	followers followerWaits
	endpoints endpointFinder
	sessions  *fetchSessions
	maxBytes  int // fetch.max.bytes
}

// fetchRun is one request on its way. Nothing in it points into the frame.
type fetchRun struct {
	*fetch
	version   int16
	conn      *server.Conn
	committed bool
	follower  followerID // of a replica
	maxBytes  int
	place     *fetchContext
	reads     []fetchRead
	topic     *image.Topic // the last that resolve has found in the image of this read; nil: none yet
}

// fetchRead is one partition of a request. Either it is unknown, or it was read.
type fetchRead struct {
	target  *fetchTarget
	topic   string // "" while its id is unknown; what a session has last known of it comes with the request
	part    *replica.Partition
	unknown error // the cluster does not have it
	err     error // reading it failed
	result  replica.ReadResult
}

// followerID is which replica fetches, in which of its lives; NoBroker for a consumer.
type followerID struct {
	id    wire.BrokerID
	epoch wire.BrokerEpoch
}

// isConsumer also holds for the debugging tools that fetch as replica -2.
func (f followerID) isConsumer() bool { return f.id < 0 }

// isDebugging holds for those tools: they are consumers to which followers answer, too.
func (f followerID) isDebugging() bool { return f.id < consumerReplica }

func followerOf(msg *kmsg.FetchRequest) followerID {
	if msg.Version >= 15 {
		return followerID{wire.BrokerID(msg.ReplicaState.ID), wire.BrokerEpoch(msg.ReplicaState.Epoch)}
	}
	return followerID{wire.BrokerID(msg.ReplicaID), wire.NoBrokerEpoch}
}

func (h *fetch) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.FetchRequest)
	follower := followerOf(msg)
	var turn replica.FollowerTurn
	if !follower.isConsumer() {
		if !isPeer(req, follower.id) {
			w.Drop(errFollowerFetch)
			return
		}
		if err := h.followers.CheckFollower(follower.id, follower.epoch); err != nil {
			h.refuse(w, err, req.Version)
			return
		}
		turn = h.followers.FollowerTurn(follower.id)
	}
	asked := sessionOf(msg)
	asked.follower = !follower.isConsumer()
	place, err := h.sessions.open(asked)
	if err != nil {
		h.refuse(w, err, req.Version)
		return
	}
	r := &fetchRun{fetch: h, version: req.Version, conn: req.Conn, committed: msg.IsolationLevel == 1, follower: follower,
		maxBytes: min(int(msg.MaxBytes), h.maxBytes), place: place, reads: make([]fetchRead, len(place.items))}
	for i := range r.reads {
		r.reads[i].target, r.reads[i].topic = place.items[i].target, place.items[i].topic
	}
	minBytes := min(int64(msg.MinBytes), int64(r.maxBytes))
	wait := time.Duration(msg.MaxWaitMillis) * time.Millisecond
	bytes, atOnce := r.read(h.images.Image(), false)
	if atOnce || wait <= 0 || bytes >= minBytes {
		r.answer(ctx, w)
		return
	}
	if !follower.isConsumer() {
		r.park(w, minBytes-bytes, turn.Wait(wait, len(r.reads)), turn.Watch)
		return
	}
	r.park(w, minBytes-bytes, wait, nil)
}

// refuse answers the whole request with an error.
func (h *fetch) refuse(w server.Responder, err error, version int16) {
	resp := &wire.FetchResponse{ErrorCode: errorCode(err)}
	w.ReplyFunc(func() []wire.Segment { return wire.EncodeFetch(resp, version) })
}

// sessionOf takes what a request says of its session and partitions out of the frame.
func sessionOf(msg *kmsg.FetchRequest) sessionRequest {
	s := sessionRequest{id: msg.SessionID, epoch: msg.SessionEpoch, usesIDs: msg.Version >= 13}
	if msg.Version < 7 {
		s.id, s.epoch = 0, finalEpoch
	}
	n := 0
	for i := range msg.Topics {
		n += len(msg.Topics[i].Partitions)
	}
	all := make([]fetchTarget, 0, n)
	s.targets = make([]*fetchTarget, 0, n)
	for i := range msg.Topics {
		t := &msg.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			all = append(all, fetchTarget{partitionKey: partitionKey{t.Topic, t.TopicID, wire.PartitionID(p.Partition)},
				offset: wire.Offset(p.FetchOffset), maxBytes: p.PartitionMaxBytes, leaderEpoch: wire.LeaderEpoch(p.CurrentLeaderEpoch),
				lastFetchedEpoch: wire.LeaderEpoch(p.LastFetchedEpoch), logStart: wire.Offset(p.LogStartOffset)})
			s.targets = append(s.targets, &all[len(all)-1])
		}
	}
	for i := range msg.ForgottenTopics {
		t := &msg.ForgottenTopics[i]
		for _, p := range t.Partitions {
			s.forgotten = append(s.forgotten, partitionKey{t.Topic, t.TopicID, wire.PartitionID(p)})
		}
	}
	return s
}

// read reads every partition within the limits; again says that the request has been read before and has waited: then what had nothing
// to read and has not moved since is left as it was. It gives the bytes read, and whether the answer must not wait: because
// a partition could not be read, has diverged, or because there is nothing to wait for.
func (r *fetchRun) read(img *image.Image, again bool) (bytes int64, atOnce bool) {
	left, first, known := r.maxBytes, true, false
	r.topic = nil
	for i := range r.reads {
		f := &r.reads[i]
		if again && f.unknown == nil && f.err == nil && f.part.StillEnd(&f.result) {
			known = true
			continue
		}
		f.result, f.err = replica.ReadResult{}, nil
		if f.unknown = r.resolve(img, f); f.unknown != nil {
			continue
		}
		known = true
		if f.part == nil && f.err == nil {
			f.err = kerr.NotLeaderForPartition
		}
		if f.err == nil {
			o := replica.ReadOptions{Offset: f.target.offset, LeaderEpoch: f.target.leaderEpoch,
				LastFetchedEpoch: f.target.lastFetchedEpoch, Max: max(0, min(int(f.target.maxBytes), left)), MinOne: first, Committed: r.committed}
			switch {
			case r.follower.isDebugging() && r.version >= 11:
				f.result, f.err = f.part.ReadReplica(o)
			case r.follower.isConsumer():
				f.result, f.err = f.part.Read(o)
			case again:
				f.result, f.err = f.part.RereadAsFollower(r.progress(f.target), o)
			default:
				f.result, f.err = f.part.ReadAsFollower(r.progress(f.target), o)
			}
		}
		if f.err != nil || f.result.Diverging != nil {
			atOnce = true
			continue
		}
		if n := f.result.Size; n > 0 {
			first = false
			left = max(0, left-int(n))
			bytes += n
		}
	}
	return bytes, atOnce || !known
}

// progress is what a replica's fetch says of its log.
func (r *fetchRun) progress(t *fetchTarget) replica.FollowerFetch {
	return replica.FollowerFetch{Replica: r.follower.id, BrokerEpoch: r.follower.epoch, LeaderEpoch: t.leaderEpoch, Offset: t.offset, LogStart: t.logStart}
}

// resolve finds a partition: by id from v13 on, and the id's name anew each time, since a session keeps ids that are not
// known yet. An id that a session knew by its name is told apart from one that was never known: the topic is gone, or it is
// another one now.
func (r *fetchRun) resolve(img *image.Image, f *fetchRead) error {
	k := &f.target.partitionKey
	f.part = nil
	if r.place.usesIDs {
		t, ok := r.topicByID(img, k.id)
		if !ok && f.topic == "" {
			return kerr.UnknownTopicID
		}
		if !ok {
			if _, ok := img.Partition(f.topic, k.partition); !ok {
				return kerr.UnknownTopicOrPartition
			}
			if _, ok := r.parts.ByName(f.topic, k.partition); ok {
				f.err = kerr.InconsistentTopicID
			}
			return nil
		}
		f.topic = t.Name
		if _, ok := t.Partition(k.partition); !ok {
			return kerr.UnknownTopicOrPartition
		}
		if f.part, ok = r.parts.Partition(k.id, k.partition); !ok {
			f.part = nil
			if other, ok := r.parts.ByName(t.Name, k.partition); ok && other.TopicID != k.id {
				f.err = kerr.InconsistentTopicID
			}
		}
		return nil
	}
	f.topic = k.topic
	if _, ok := img.Partition(k.topic, k.partition); !ok {
		return kerr.UnknownTopicOrPartition
	}
	f.part, _ = r.parts.ByName(k.topic, k.partition)
	return nil
}

// topicByID is that of img. The partitions of a session mostly follow those of the same topic.
func (r *fetchRun) topicByID(img *image.Image, id wire.UUID) (*image.Topic, bool) {
	if r.topic != nil && r.topic.ID == id {
		return r.topic, true
	}
	t, ok := img.TopicByID(id)
	if ok {
		r.topic = t
	}
	return t, ok
}

// release lets go of what was read.
func (r *fetchRun) release() {
	for i := range r.reads {
		wire.Release(r.reads[i].result.Segments)
		r.reads[i].result.Segments = nil
	}
}

// answer sends what was read. The connection may end before its writer comes to it: then the pins go with ctx.
func (r *fetchRun) answer(ctx context.Context, w server.Responder) {
	keep := context.AfterFunc(ctx, r.release)
	w.ReplyFunc(func() []wire.Segment {
		if !keep() {
			return nil // the connection is gone
		}
		return r.encode()
	})
}

// park waits for missing bytes, at most for d. What was read is let go: the writer reads again when it has become worth
// it, so the answer shows the newest state and costs the client that asked. also, unless nil, adds what else may wake it.
func (r *fetchRun) park(w server.Responder, missing int64, d time.Duration, also func(*purgatory.Fetch)) {
	r.release()
	parked := make(chan struct{}) // what was read is the writer's from then on, who may be woken and at work before
	defer close(parked)
	f := purgatory.NewFetch(missing, len(r.reads)+1, func() {
		w.ReplyFunc(func() []wire.Segment {
			<-parked
			r.read(r.images.Image(), true)
			return r.encode()
		})
	})
	for i := range r.reads {
		if e := &r.reads[i]; e.part != nil && e.err == nil {
			e.part.WatchRead(f, e.result, max(0, int64(e.target.maxBytes)-e.result.Size))
		}
	}
	if also != nil {
		also(f)
	}
	f.Start(d)
}

// encode makes the response of what was read.
func (r *fetchRun) encode() []wire.Segment {
	resp := &wire.FetchResponse{}
	answers := make([]partitionAnswer, len(r.reads))
	for i := range r.reads {
		answers[i] = r.judge(&r.reads[i])
	}
	id, send, err := r.place.finish(answers)
	resp.SessionID, resp.ErrorCode = id, errorCode(err)
	if err != nil {
		r.release()
		return wire.EncodeFetch(resp, r.version)
	}
	var img *image.Image
	for _, i := range r.order() {
		if !send[i] {
			wire.Release(r.reads[i].result.Segments)
			continue
		}
		part := r.fill(&r.reads[i])
		if code := part.ErrorCode; r.version >= 16 && (code == kerr.NotLeaderForPartition.Code || code == kerr.FencedLeaderEpoch.Code) {
			if img == nil {
				img = r.images.Image()
			}
			r.hint(img, resp, &r.reads[i], &part)
		}
		k := &r.reads[i].target.partitionKey
		n := len(resp.Topics)
		if n == 0 || resp.Topics[n-1].Name != k.topic || resp.Topics[n-1].ID != k.id {
			resp.Topics = append(resp.Topics, wire.FetchTopic{Name: k.topic, ID: k.id})
			n++
		}
		resp.Topics[n-1].Partitions = append(resp.Topics[n-1].Partitions, part)
	}
	return wire.EncodeFetch(resp, r.version)
}

// order is the order of the answer: what was read, in the order of the session, then unknown topic ids, then unknown
// partitions.
func (r *fetchRun) order() []int {
	order := make([]int, 0, len(r.reads))
	for rank := range 3 {
		for i := range r.reads {
			if r.reads[i].rank() == rank {
				order = append(order, i)
			}
		}
		if len(order) == len(r.reads) {
			break
		}
	}
	return order
}

func (f *fetchRead) rank() int {
	switch {
	case f.unknown == nil:
		return 0
	case errors.Is(f.unknown, kerr.UnknownTopicID):
		return 1
	}
	return 2
}

// judge is what of one partition's answer decides whether it is sent. What a client of this version can't be given is an error from here
// on.
func (r *fetchRun) judge(f *fetchRead) partitionAnswer {
	if f.unknown == nil && f.err == nil && r.version < 10 && storesZstd(f.part.Config()) {
		wire.Release(f.result.Segments)
		f.result, f.err = replica.ReadResult{}, kerr.UnsupportedCompressionType
	}
	if f.unknown != nil || f.err != nil {
		return partitionAnswer{topic: f.topic, hw: wire.NoOffset, logStart: wire.NoOffset, failed: true}
	}
	res := &f.result
	return partitionAnswer{topic: f.topic, bytes: res.Size, hw: res.HW, logStart: res.LogStart, must: res.Diverging != nil}
}

// fill makes one partition's answer. On an error nothing else is told (B20).
func (r *fetchRun) fill(f *fetchRead) (out wire.FetchPartition) {
	out = wire.FetchPartition{Partition: f.target.partition, HighWatermark: wire.NoOffset, LastStableOffset: wire.NoOffset,
		LogStartOffset: wire.NoOffset, PreferredReadReplica: wire.NoBroker}
	err := f.unknown
	if err == nil {
		err = f.err
	}
	if err != nil {
		out.ErrorCode = readErrorCode(err)
		if f.unknown != nil {
			out.Aborted = []wire.AbortedTransaction{} // as Kafka: null only where a read was tried
		}
		if out.ErrorCode == kerr.KafkaStorageError.Code && r.version <= 5 {
			out.ErrorCode = kerr.NotLeaderForPartition.Code
		}
		return out
	}
	res := &f.result
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = res.HW, res.LSO, res.LogStart
	if res.Diverging != nil {
		out.DivergingEpoch = &wire.EpochEndOffset{Epoch: res.Diverging.Epoch, EndOffset: res.Diverging.End}
	}
	out.Records = res.Segments
	if r.committed && res.Diverging == nil && !res.Withheld { // else null, as Kafka
		out.Aborted = make([]wire.AbortedTransaction, len(res.Aborted))
		for i, a := range res.Aborted {
			out.Aborted[i] = wire.AbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset}
		}
	}
	return out
}

// storesZstd reports whether the topic's compression.type makes every batch one that clients below v10 cannot read.
func storesZstd(c *log.Config) bool {
	return c.Compression.Fixed && c.Compression.Type == compress.Zstd
}

func (r *fetchRun) hint(img *image.Image, resp *wire.FetchResponse, f *fetchRead, out *wire.FetchPartition) {
	h := hintLeader(img, r.endpoints, r.conn, f.topic, f.target.partition)
	if !h.known {
		return
	}
	out.CurrentLeader = &wire.LeaderAndEpoch{ID: h.leader, Epoch: h.epoch}
	for i := range resp.NodeEndpoints {
		if resp.NodeEndpoints[i].ID == h.leader {
			return
		}
	}
	resp.NodeEndpoints = append(resp.NodeEndpoints, wire.NodeEndpoint{ID: h.leader, Host: h.host, Port: h.port, Rack: h.rack})
}
