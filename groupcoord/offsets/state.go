package offsets

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
)

// Config are the broker's limits.
type Config struct {
	MaxMetadata int           // offset.metadata.max.bytes, in UTF-16 units as Kafka counts
	Retention   time.Duration // offsets.retention.minutes
}

// Groups is what the offsets need to know of the groups of their shard.
type Groups interface {
	// ValidateCommit says whether the sender may commit; nil if so.
	ValidateCommit(group, memberID string, instance *string, generation int32, version int16) *kerr.Error
	// ValidateTxnCommit is ValidateCommit for offsets in a transaction (KIP-447).
	ValidateTxnCommit(group, memberID string, instance *string, generation int32, version int16) *kerr.Error
	// Touch is the effect that restarts the session of a member that commits.
	Touch(group, memberID string, now time.Time) (coord.Effect, bool)
	// ValidateOffsetDelete says whether offsets of the group may be deleted; nil if so.
	ValidateOffsetDelete(group string) *kerr.Error
	// Subscribed reports whether members of the group may still consume the topic.
	Subscribed(group, topic string) bool
	// Retention says whether offsets may expire now, and since when the time counts (zero: from each commit).
	Retention(group string) (since time.Time, expires bool)
	// Removable reports whether nothing but offsets keeps the group.
	Removable(group string) bool
	// Tombstone is the record that removes the group.
	Tombstone(group string) coord.Record
}

// Entry is one committed offset.
type Entry struct {
	Offset      wire.Offset
	LeaderEpoch wire.LeaderEpoch // NoLeaderEpoch if the client did not send one
	Metadata    string
	Commit      int64     // wall clock in ms
	Expire      int64     // wall clock in ms, -1 for the broker's retention
	TopicID     wire.UUID // zero in records before v4
	at          wire.Offset
}

type (
	partitions map[wire.PartitionID]Entry
	topics     map[string]partitions
	groups     map[string]topics
)

// State is the committed offsets of one shard. Not safe for concurrent use.
type State struct {
	cfg     Config
	groups  Groups
	offsets groups
	// pending holds the offsets of open transactions; open lists, per group, who has some.
	pending map[wire.ProducerID]groups
	open    map[string]map[wire.ProducerID]struct{}
}

// New makes a state without offsets.
func New(cfg Config, g Groups) *State {
	return &State{
		cfg: cfg, groups: g, offsets: make(groups),
		pending: make(map[wire.ProducerID]groups), open: make(map[string]map[wire.ProducerID]struct{}),
	}
}

// Versions of the OffsetCommit record: what is written, and what is read. A commit with a retention of its own is
// written as v1, the last version that can hold it.
const (
	keyVersion       = 1
	valueVersion     = 4
	retentionVersion = 1
	maxValueVersion  = 4
)

// Key is the key of an OffsetCommit record.
type Key struct {
	Group     string
	Topic     string
	Partition wire.PartitionID
}

// Replay applies an OffsetCommit record; value nil is a tombstone. The bytes are not kept.
func (s *State) Replay(k Key, value []byte, at coord.Pos) error {
	if value == nil {
		s.offsets.remove(k)
		for id := range s.open[k.Group] {
			s.pending[id].remove(k)
		}
		return nil
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return fmt.Errorf("offset commit of group %q for %s-%d: %w", k.Group, k.Topic, k.Partition, err)
	}
	if v.Version < 0 || v.Version > maxValueVersion {
		return fmt.Errorf("offset commit of group %q for %s-%d: version %d is not known, the newest is %d",
			k.Group, k.Topic, k.Partition, v.Version, maxValueVersion)
	}
	e := Entry{
		Offset: wire.Offset(v.Offset), LeaderEpoch: wire.NoLeaderEpoch, Metadata: v.Metadata, Commit: v.CommitTimestamp,
		Expire: wire.NoTimestamp, TopicID: v.TopicID, at: at.Offset,
	}
	if v.Version >= 3 {
		e.LeaderEpoch = wire.LeaderEpoch(v.LeaderEpoch)
	}
	if v.Version == retentionVersion {
		e.Expire = v.ExpireTimestamp
	}
	if !at.Transactional || planted.On(planted.OffsetsAtOnce) {
		s.offsets.put(k, e)
		return nil
	}
	id := at.ProducerID
	if s.pending[id] == nil {
		s.pending[id] = make(groups)
	}
	s.pending[id].put(k, e)
	if s.open[k.Group] == nil {
		s.open[k.Group] = make(map[wire.ProducerID]struct{})
	}
	s.open[k.Group][id] = struct{}{}
	return nil
}

// ReplayMarker ends a producer's transaction: its offsets become visible, unless a later commit replaced them, or go.
func (s *State) ReplayMarker(id wire.ProducerID, commit bool) {
	for group, ts := range s.pending[id] {
		delete(s.open[group], id)
		if len(s.open[group]) == 0 {
			delete(s.open, group)
		}
		if !commit && !planted.On(planted.OffsetsOnAbort) || planted.On(planted.OffsetsForgotten) {
			continue
		}
		for topic, ps := range ts {
			for p, e := range ps {
				k := Key{Group: group, Topic: topic, Partition: p}
				if old, ok := s.offsets.get(k); !ok || old.at < e.at {
					s.offsets.put(k, e)
				}
			}
		}
	}
	delete(s.pending, id)
}

// unstable reports whether an open transaction has an offset for k.
func (s *State) unstable(k Key) bool {
	for id := range s.open[k.Group] {
		if _, ok := s.pending[id].get(k); ok {
			return true
		}
	}
	return false
}

func (g groups) get(k Key) (Entry, bool) {
	e, ok := g[k.Group][k.Topic][k.Partition]
	return e, ok
}

func (g groups) put(k Key, e Entry) {
	ts := g[k.Group]
	if ts == nil {
		ts = make(topics)
		g[k.Group] = ts
	}
	ps := ts[k.Topic]
	if ps == nil {
		ps = make(partitions)
		ts[k.Topic] = ps
	}
	ps[k.Partition] = e
}

func (g groups) remove(k Key) {
	ps := g[k.Group][k.Topic]
	delete(ps, k.Partition)
	if len(ps) == 0 {
		delete(g[k.Group], k.Topic)
	}
	if len(g[k.Group]) == 0 {
		delete(g, k.Group)
	}
}

// each calls fn for every offset, sorted, until fn returns false.
func (t topics) each(group string, fn func(k Key, e Entry) bool) bool {
	for _, topic := range slices.Sorted(maps.Keys(t)) {
		ps := t[topic]
		for _, p := range slices.Sorted(maps.Keys(ps)) {
			if !fn(Key{Group: group, Topic: topic, Partition: p}, ps[p]) {
				return false
			}
		}
	}
	return true
}

// Len is the number of committed offsets.
func (s *State) Len() int {
	n := 0
	for _, ts := range s.offsets {
		for _, ps := range ts {
			n += len(ps)
		}
	}
	return n
}

// record makes an entry durable.
func record(k Key, e Entry) coord.Record {
	v := kmsg.OffsetCommitValue{
		Version: valueVersion, Offset: int64(e.Offset), LeaderEpoch: int32(e.LeaderEpoch), Metadata: e.Metadata,
		CommitTimestamp: e.Commit, TopicID: e.TopicID,
	}
	if e.Expire != wire.NoTimestamp {
		v.Version, v.ExpireTimestamp = retentionVersion, e.Expire
	}
	return coord.Record{Key: k.bytes(), Value: v.AppendTo(nil)}
}

func tombstone(k Key) coord.Record { return coord.Record{Key: k.bytes()} }

func (k Key) bytes() []byte {
	r := kmsg.OffsetCommitKey{Version: keyVersion, Group: k.Group, Topic: k.Topic, Partition: int32(k.Partition)}
	return r.AppendTo(nil)
}

// Image is the state as text, for comparing a live state with a replayed one.
func (s *State) Image() string {
	var b strings.Builder
	write := func(what string, g groups) {
		for _, group := range slices.Sorted(maps.Keys(g)) {
			g[group].each(group, func(k Key, e Entry) bool {
				fmt.Fprintf(&b, "%s %q %s-%d offset=%d epoch=%d metadata=%q commit=%d expire=%d topic_id=%s at=%d\n", what, group,
					k.Topic, k.Partition, e.Offset, e.LeaderEpoch, e.Metadata, e.Commit, e.Expire, e.TopicID, e.at)
				return true
			})
		}
	}
	write("offset", s.offsets)
	for _, id := range slices.Sorted(maps.Keys(s.pending)) {
		write(fmt.Sprintf("pending(%d)", id), s.pending[id])
	}
	for _, group := range slices.Sorted(maps.Keys(s.open)) {
		fmt.Fprintf(&b, "open %q %v\n", group, slices.Sorted(maps.Keys(s.open[group])))
	}
	return b.String()
}
