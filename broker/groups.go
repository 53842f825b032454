package broker

import (
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/groupcoord/classic"
	"github.com/kajamq/kaja/groupcoord/offsets"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// protocolsPerRecord is how much of what its members say a group may hold, in records as large as a topic takes by default:
// one protocol of each member goes into the group's record, and clients list up to a few.
const protocolsPerRecord = 8

func (b *Broker) newGroups() *groupcoord.Service {
	return groupcoord.NewService(groupcoord.Options{
		Groups: classic.Config{
			MinSession:   b.cfg.Duration("group.min.session.timeout.ms"),
			MaxSession:   b.cfg.Duration("group.max.session.timeout.ms"),
			InitialDelay: b.cfg.Duration("group.initial.rebalance.delay.ms"),
			NewMember:    classic.NewMemberTimeout,
			MaxSize:      b.cfg.Int("group.max.size"),
			MaxProtocols: protocolsPerRecord * b.cfg.Int("message.max.bytes"),
		},
		Offsets: offsets.Config{
			MaxMetadata: b.cfg.Int("offset.metadata.max.bytes"),
			Retention:   b.cfg.Duration("offsets.retention.minutes"),
		},
		Outdated:      b.outdated,
		CatchUp:       b.catchUp,
		CommitTimeout: b.cfg.Duration("offsets.commit.timeout.ms"),
		CheckInterval: b.cfg.Duration("offsets.retention.check.interval.ms"),
		NewMemberUUID: b.ids.memberUUID,
		NumPartitions: func() int {
			if t, ok := b.Image().Topic(image.OffsetsTopic); ok {
				return len(t.Partitions)
			}
			return 0
		},
		Topics: groupcoord.TopicIDs(func(name string) (wire.UUID, bool) {
			t, ok := b.Image().Topic(name)
			if !ok {
				return wire.UUID{}, false
			}
			return t.ID, true
		}),
		Logger: b.logger, Registerer: b.env.Registerer,
	})
}
