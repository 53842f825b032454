package loop

import (
	"encoding/binary"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shard is the group coordinator on the leader of the offsets partition: the cores of groupcoord.
type shard struct {
	host
	groups  *classic.State
	offsets *offsets.State
	timers  map[string]int // generation of the newest timer of a key
}

func newShard(p *part) *shard {
	s := &shard{timers: map[string]int{}, groups: classic.New(classic.Config{
		MinSession: time.Second, MaxSession: time.Minute, NewMember: classic.NewMemberTimeout, MaxSize: 100})}
	s.offsets = offsets.New(offsets.Config{MaxMetadata: 4096, Retention: 7 * 24 * time.Hour}, s.groups)
	s.load(p, s.replayOne, s.run)
	p.n.later(0, func() {
		if !s.ended {
			s.carry(0, s.groups.Loaded(p.n.c.time()))
		}
	})
	return s
}

func (s *shard) replayOne(rec coord.Record, at coord.Pos) error {
	if binary.BigEndian.Uint16(rec.Key) == 1 {
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(rec.Key); err != nil {
			return err
		}
		s.groups.ReplayOffset(k.Group)
		return s.offsets.Replay(offsets.Key{Group: k.Group, Topic: k.Topic, Partition: wire.PartitionID(k.Partition)}, rec.Value, at)
	}
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(rec.Key); err != nil {
		return err
	}
	return s.groups.ReplayMetadata(k.Group, rec.Value)
}

// run starts a timer.
func (s *shard) run(e coord.Effect) {
	t, ok := e.(classic.Timer)
	if !ok {
		return
	}
	s.timers[t.Key()]++
	generation := s.timers[t.Key()]
	if t.At.IsZero() {
		return
	}
	s.p.n.later(t.At.Sub(s.p.n.c.time()), func() {
		if !s.ended && s.timers[t.Key()] == generation {
			s.carry(0, s.groups.Expire(s.p.n.c.time(), t))
		}
	})
}
