package loop

import (
	"encoding/binary"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shard is the group coordinator on the leader of the offsets partition: the cores of groupcoord, and what package coord
// does around them: append, replay, and answer once everything that the answer may have seen is committed.
type shard struct {
	p       *part
	epoch   wire.LeaderEpoch
	groups  *classic.State
	offsets *offsets.State
	loaded  wire.Offset // answers wait for HW >= loaded
	queue   []*reply
	tokens  map[coord.Token]func(body any, err error)
	next    coord.Token
	timers  map[string]int // generation of the newest timer of a key
	ended   bool
}

// reply leaves once the high watermark has reached end and everything before it has left.
type reply struct {
	end     wire.Offset
	replies []coord.Reply
	effects []coord.Effect
}

func newShard(p *part) *shard {
	s := &shard{p: p, epoch: p.meta.LeaderEpoch, groups: classic.New(classic.Config{
		MinSession: time.Second, MaxSession: time.Minute, NewMember: classic.NewMemberTimeout, MaxSize: 100})}
	s.offsets = offsets.New(offsets.Config{MaxMetadata: 4096, Retention: 7 * 24 * time.Hour}, s.groups)
	s.tokens, s.timers = map[coord.Token]func(any, error){}, map[string]int{}
	err := p.plog.Scan(p.plog.StartOffset(), p.plog.EndOffset(), func(b batch.Batch) error { return s.replay(b) })
	if err != nil {
		p.n.c.violated("node %d: load groups: %v", p.n.id, err)
	}
	s.loaded = p.plog.EndOffset()
	p.n.later(0, func() {
		if !s.ended {
			s.carry(0, s.groups.Loaded(p.n.c.time()))
		}
	})
	return s
}

func (s *shard) replay(b batch.Batch) error {
	raw, err := b.Records(s.p.n.c.codecs, nil, 1<<20)
	if err != nil {
		return err
	}
	it := batch.Iterate(raw, b.Count())
	for it.Next() {
		rec := &it.Record
		pos := coord.Pos{ProducerID: wire.NoProducer, Offset: b.BaseOffset() + wire.Offset(rec.OffsetDelta), Timestamp: time.UnixMilli(rec.Timestamp(b))}
		if err := s.replayOne(append([]byte(nil), rec.Key...), append([]byte(nil), rec.Value...), rec.Value == nil, pos); err != nil {
			return err
		}
	}
	return it.Err()
}

func (s *shard) replayOne(key, value []byte, tombstone bool, pos coord.Pos) error {
	if tombstone {
		value = nil
	}
	if binary.BigEndian.Uint16(key) == 1 {
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(key); err != nil {
			return err
		}
		s.groups.ReplayOffset(k.Group)
		return s.offsets.Replay(offsets.Key{Group: k.Group, Topic: k.Topic, Partition: wire.PartitionID(k.Partition)}, value, pos)
	}
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return err
	}
	return s.groups.ReplayMetadata(k.Group, value)
}

// end drops the machine, and fails whoever waits.
func (s *shard) end() {
	s.ended = true
	for tok := coord.Token(1); tok <= s.next; tok++ {
		s.tell(coord.Reply{Token: tok, Err: kerr.NotCoordinator})
	}
}

func (s *shard) tell(r coord.Reply) {
	if done, ok := s.tokens[r.Token]; ok {
		delete(s.tokens, r.Token)
		done(r.Body, r.Err)
	}
}

// op runs one operation; done is told the reply.
func (s *shard) op(decide func(tok coord.Token, now time.Time) coord.Decision, done func(body any, err error)) {
	if s.p.state.HW() < s.loaded {
		done(nil, kerr.CoordinatorLoadInProgress)
		return
	}
	s.next++
	tok := s.next
	s.tokens[tok] = done
	s.carry(tok, decide(tok, s.p.n.c.time()))
}

// carry carries out a decision.
func (s *shard) carry(tok coord.Token, d coord.Decision) {
	c := s.p.n.c
	if !d.Empty() {
		got, err := s.append(d)
		if err != nil {
			var replies []coord.Reply
			var effects []coord.Effect
			if d.Soft != nil {
				replies, effects = d.Soft(err)
			}
			s.queue = append(s.queue, &reply{end: s.loaded, replies: append(replies, coord.Reply{Token: tok, Err: err}), effects: effects})
			s.pop()
			return
		}
		for i, r := range d.Records {
			pos := coord.Pos{ProducerID: wire.NoProducer, Offset: got.First + wire.Offset(i), Timestamp: time.UnixMilli(d.Timestamp.UnixMilli())}
			if err := s.replayOne(r.Key, r.Value, r.Value == nil, pos); err != nil {
				c.violated("node %d: replay: %v", s.p.n.id, err)
			}
		}
	}
	q := &reply{end: s.p.plog.EndOffset(), replies: d.Replies, effects: d.Effects}
	if d.Soft != nil {
		r, e := d.Soft(nil)
		q.replies, q.effects = append(q.replies, r...), append(q.effects, e...)
	}
	s.queue = append(s.queue, q)
	s.pop()
}

func (s *shard) append(d coord.Decision) (log.Appended, error) {
	c := s.p.n.c
	b := batch.NewBuilder(batch.Spec{LeaderEpoch: wire.NoLeaderEpoch})
	for _, r := range d.Records {
		b.Add(batch.NewRecord{Timestamp: d.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value})
	}
	out, _, err := b.Build(nil, c.codecs)
	if err != nil {
		return log.Appended{}, err
	}
	v, err := log.Validate(out, log.ValidateOptions{Config: c.logConfig, Now: c.time(), Coordinator: true, Codecs: c.codecs})
	if err != nil {
		return log.Appended{}, err
	}
	return s.p.append(v, s.epoch, -1, func(log.Appended, error) { s.later() })
}

// later lets what is committed leave after this event.
func (s *shard) later() { s.p.n.later(0, s.pop) }

func (s *shard) pop() {
	for len(s.queue) > 0 && !s.ended && s.p.leads() && s.p.state.HW() >= s.queue[0].end {
		q := s.queue[0]
		s.queue = s.queue[1:]
		for _, r := range q.replies {
			s.tell(r)
		}
		s.run(q.effects)
	}
}

// run starts timers.
func (s *shard) run(effects []coord.Effect) {
	for _, e := range effects {
		t, ok := e.(classic.Timer)
		if !ok {
			continue
		}
		s.timers[t.Key()]++
		generation := s.timers[t.Key()]
		if t.At.IsZero() {
			continue
		}
		s.p.n.later(t.At.Sub(s.p.n.c.time()), func() {
			if !s.ended && s.timers[t.Key()] == generation {
				s.carry(0, s.groups.Expire(s.p.n.c.time(), t))
			}
		})
	}
}
