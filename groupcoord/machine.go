package groupcoord

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/wire"
)

// Record types in __consumer_offsets, the first two bytes of a key.
const (
	typeOffsetCommitV0 = 0 // read only, same fields as 1
	typeOffsetCommit   = 1
	typeGroupMetadata  = 2
)

// machine is the state of one shard.
type machine struct {
	groups  *classic.State
	offsets *offsets.State
	logger  *slog.Logger
	unknown map[int16]bool // record types that were warned of
}

func newMachine(c classic.Config, o offsets.Config, logger *slog.Logger) *machine {
	m := &machine{groups: classic.New(c), logger: logger, unknown: make(map[int16]bool)}
	m.offsets = offsets.New(o, m.groups)
	return m
}

// Replay implements coord.Machine. Record types of other group protocols are left alone with a warning, as Kafka does
// after a downgrade.
func (m *machine) Replay(rec coord.Record, at coord.Pos) error {
	if len(rec.Key) < 2 {
		return fmt.Errorf("record key of %d bytes is too short", len(rec.Key))
	}
	switch t := int16(binary.BigEndian.Uint16(rec.Key)); t {
	case typeOffsetCommitV0, typeOffsetCommit:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(rec.Key); err != nil {
			return fmt.Errorf("offset commit key: %w", err)
		}
		key := offsets.Key{Group: k.Group, Topic: k.Topic, Partition: wire.PartitionID(k.Partition)}
		if err := m.offsets.Replay(key, rec.Value, at); err != nil {
			return err
		}
		if rec.Value != nil {
			m.groups.ReplayOffset(k.Group)
		}
	case typeGroupMetadata:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(rec.Key); err != nil {
			return fmt.Errorf("group metadata key: %w", err)
		}
		return m.groups.ReplayMetadata(k.Group, rec.Value)
	default:
		if !m.unknown[t] {
			m.unknown[t] = true
			m.logger.Warn("group records of an unknown type are ignored", "record_type", t, "offset", at.Offset)
		}
	}
	return nil
}

// ReplayMarker implements coord.Machine.
func (m *machine) ReplayMarker(id wire.ProducerID, _ wire.ProducerEpoch, commit bool) error {
	m.offsets.ReplayMarker(id, commit)
	return nil
}

// op is an operation on a shard of groups.
type op = coord.Op[*machine]

// armed turns the timers among a core's effects into timers of the runtime.
func armed(d coord.Decision) coord.Decision {
	arm(d.Effects)
	if soft := d.Soft; soft != nil {
		d.Soft = func(err error) ([]coord.Reply, []coord.Effect) {
			replies, effects := soft(err)
			arm(effects)
			return replies, effects
		}
	}
	return d
}

func arm(effects []coord.Effect) {
	for i, e := range effects {
		t, ok := e.(classic.Timer)
		if !ok {
			continue
		}
		effects[i] = coord.Timer[*machine]{
			Key: t.Key(), At: t.At,
			Op: func(m *machine, _ coord.Token, now time.Time) coord.Decision { return armed(m.groups.Expire(now, t)) },
		}
	}
}
