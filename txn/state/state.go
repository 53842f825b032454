package state

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Config are the broker's limits.
type Config struct {
	MaxTimeoutMs int32         // transaction.max.timeout.ms
	Expiration   time.Duration // transactional.id.expiration.ms
}

// State is the transactions of one shard. Not safe for concurrent use.
type State struct {
	cfg  Config
	byID map[string]*Txn
	// skipped counts records of later releases, which Kafka ignores, too.
	skipped int
}

var _ coord.Machine = (*State)(nil)

// New makes a state without transactions.
func New(c Config) *State { return &State{cfg: c, byID: make(map[string]*Txn)} }

// Replay implements coord.Machine.
func (s *State) Replay(rec coord.Record, _ coord.Pos) error {
	id, err := coordrec.DecodeTxnKey(rec.Key)
	if errors.Is(err, coordrec.ErrTxnKeyVersion) {
		s.skipped++
		return nil
	}
	if err != nil {
		return err
	}
	if rec.Value == nil {
		delete(s.byID, id)
		return nil
	}
	t, err := parse(id, rec.Value)
	if err != nil {
		return err
	}
	if old := s.byID[id]; old != nil {
		t.retry, t.user = old.retry, old.user
	}
	s.byID[id] = t
	return nil
}

// ReplayMarker implements coord.Machine. There are no transactional records in this log.
func (s *State) ReplayMarker(id wire.ProducerID, _ wire.ProducerEpoch, _ bool) error {
	return fmt.Errorf("a transaction marker of producer %d in the transaction log", id)
}

// Lookup gives what is known of an id; false if nothing is. It must not be changed.
func (s *State) Lookup(id string) (*Txn, bool) {
	t, ok := s.byID[id]
	return t, ok
}

// Len is the number of transactional ids.
func (s *State) Len() int { return len(s.byID) }

// IDs lists the transactional ids in order.
func (s *State) IDs() []string { return slices.Sorted(maps.Keys(s.byID)) }

// Reply is the body of the answers to InitProducerID, AddPartitions and EndTxn.
type Reply struct {
	Err      *kerr.Error // nil: done
	Producer Producer    // what the client goes on with; NoProducer with an error
	// NeedsID says that nothing was decided for want of a new producer id: draw one and ask again with it.
	NeedsID bool
}

func answer(tok coord.Token, r Reply) coord.Decision {
	return coord.Decision{Replies: []coord.Reply{{Token: tok, Body: r}}}
}

func refuse(tok coord.Token, err *kerr.Error) coord.Decision {
	return answer(tok, Reply{Err: err, Producer: NoProducer})
}

// SendMarkers is the effect that ends a decided transaction on its partitions. It is idempotent, and asked for again
// when a shard is loaded.
type SendMarkers struct {
	ID         string
	Producer   Producer // of the markers
	Commit     bool
	Version    Version // whose rules the partitions apply to the marker
	Partitions []wire.TopicPartition
}

func (t *Txn) markers() SendMarkers {
	return SendMarkers{ID: t.ID, Producer: t.producer(), Commit: t.Status == PrepareCommit, Version: t.Client, Partitions: t.SortedPartitions()}
}

// Loaded asks again for the markers of every transaction that was decided and not completed.
func (s *State) Loaded() coord.Decision {
	var d coord.Decision
	for _, id := range s.IDs() {
		if t := s.byID[id]; t.Status.prepared() && !planted.On(planted.MarkersForgotten) {
			d.Effects = append(d.Effects, t.markers())
		}
	}
	return d
}

// write is the decision to make t the state of its id.
func (t *Txn) write(cluster Version, now time.Time) coord.Decision {
	return coord.Decision{Batch: coord.Batch{
		Timestamp: now,
		Records:   []coord.Record{{Key: coordrec.AppendTxnKey(nil, t.ID), Value: t.value(cluster)}},
	}}
}

// Image is the hard state as text, for comparing a live state with a replayed one.
func (s *State) Image() string {
	var b strings.Builder
	for _, id := range s.IDs() {
		t := s.byID[id]
		fmt.Fprintf(&b, "%s %s producer=%d/%d", id, t.Status, t.ProducerID, t.Epoch)
		if t.Previous != wire.NoProducer && t.Previous != t.ProducerID {
			fmt.Fprintf(&b, " previous=%d", t.Previous)
		}
		if t.Next != wire.NoProducer {
			fmt.Fprintf(&b, " next=%d", t.Next)
		}
		fmt.Fprintf(&b, " timeout=%d started=%d updated=%d client=%d", t.TimeoutMs, t.Started, t.Updated, t.Client)
		for _, tp := range t.SortedPartitions() {
			fmt.Fprintf(&b, " %s", tp)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
