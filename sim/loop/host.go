package loop

import (
	"bytes"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
	"github.com/twmb/franz-go/pkg/kerr"
)

// host does for a coordinator's core, on the leader of its partition, what package coord does: append, replay, and answer
// once everything that the answer may have seen is committed.
type host struct {
	p      *part
	epoch  wire.LeaderEpoch
	replay func(rec coord.Record, at coord.Pos) error
	effect func(e coord.Effect) // carries out what a committed decision asks for
	loaded wire.Offset          // answers wait for HW >= loaded
	queue  []*reply
	tokens map[coord.Token]func(body any, err error)
	next   coord.Token
	ended  bool
}

// reply leaves once the high watermark has reached end and everything before it has left.
type reply struct {
	end     wire.Offset
	replies []coord.Reply
	effects []coord.Effect
}

// load makes the host of a partition that has begun to lead, and replays its log.
func (s *host) load(p *part, replay func(rec coord.Record, at coord.Pos) error, effect func(e coord.Effect)) {
	*s = host{p: p, epoch: p.meta.LeaderEpoch, replay: replay, effect: effect, tokens: map[coord.Token]func(any, error){}}
	if err := p.replay(p.plog.EndOffset(), replay); err != nil {
		p.n.c.violated("node %d: load the coordinator of partition %d: %v", p.n.id, p.i, err)
	}
	s.loaded = p.plog.EndOffset()
}

// replay gives the records of a coordinator's log below end to fn.
func (p *part) replay(end wire.Offset, fn func(rec coord.Record, at coord.Pos) error) error {
	return p.plog.Scan(p.plog.StartOffset(), end, func(b batch.Batch) error {
		raw, err := b.Records(p.n.c.codecs, nil, 1<<20)
		if err != nil {
			return err
		}
		it := batch.Iterate(raw, b.Count())
		for it.Next() {
			rec := &it.Record
			at := coord.Pos{ProducerID: wire.NoProducer, Offset: b.BaseOffset() + wire.Offset(rec.OffsetDelta), Timestamp: time.UnixMilli(rec.Timestamp(b))}
			if err := fn(coord.Record{Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value)}, at); err != nil {
				return err
			}
		}
		return it.Err()
	})
}

// end drops the machine, and fails whoever waits.
func (s *host) end() {
	s.ended = true
	for tok := coord.Token(1); tok <= s.next; tok++ {
		s.tell(coord.Reply{Token: tok, Err: kerr.NotCoordinator})
	}
}

func (s *host) tell(r coord.Reply) {
	if done, ok := s.tokens[r.Token]; ok {
		delete(s.tokens, r.Token)
		done(r.Body, r.Err)
	}
}

// op runs one operation; done is told the reply.
func (s *host) op(decide func(tok coord.Token, now time.Time) coord.Decision, done func(body any, err error)) {
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
func (s *host) carry(tok coord.Token, d coord.Decision) {
	c := s.p.n.c
	if !d.Empty() {
		got, err := s.append(d)
		if err != nil {
			c.check.parts[s.p.i].refusals++
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
			at := coord.Pos{ProducerID: wire.NoProducer, Offset: got.First + wire.Offset(i), Timestamp: time.UnixMilli(d.Timestamp.UnixMilli())}
			if err := s.replay(r, at); err != nil {
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

func (s *host) append(d coord.Decision) (log.Appended, error) {
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
func (s *host) later() { s.p.n.later(0, s.pop) }

func (s *host) pop() {
	for len(s.queue) > 0 && !s.ended && s.p.leads() && s.p.state.HW() >= s.queue[0].end {
		q := s.queue[0]
		s.queue = s.queue[1:]
		for _, r := range q.replies {
			s.tell(r)
		}
		for _, e := range q.effects {
			s.effect(e)
		}
	}
}
