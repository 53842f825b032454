package marker

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/internal/xsync"
	"github.com/kajamq/kaja/wire"
)

// attemptTag is the tagged field of WriteTxnMarkers that carries an Attempt. Kafka has no such field and passes over it.
const attemptTag = 10_001

// Attempt orders what one broker sends to another: what was sent while it was greater comes after what was sent while it
// was less, and nobody waits for the answer to the latter any more.
type Attempt struct {
	Broker wire.BrokerEpoch // of the sender's registration; a later process has a later one
	Lost   int64            // how many of its requests to that broker it never heard of again
}

func (a Attempt) before(b Attempt) bool {
	return a.Broker < b.Broker || a.Broker == b.Broker && a.Lost < b.Lost
}

// put writes a into a request.
func (a Attempt) put(req *kmsg.WriteTxnMarkersRequest) {
	data := binary.BigEndian.AppendUint64(nil, uint64(a.Broker))
	req.UnknownTags.Set(attemptTag, binary.BigEndian.AppendUint64(data, uint64(a.Lost)))
}

// AttemptOf is the attempt that a request belongs to; false when it says nothing of one, as those of Kafka's tools.
func AttemptOf(req *kmsg.WriteTxnMarkersRequest) (a Attempt, ok bool) {
	req.UnknownTags.Each(func(key uint32, data []byte) {
		if key == attemptTag && len(data) == 16 {
			a = Attempt{wire.BrokerEpoch(binary.BigEndian.Uint64(data)), int64(binary.BigEndian.Uint64(data[8:]))}
			ok = true
		}
	})
	return a, ok
}

// Fence keeps out markers that arrive after those which their sender has sent in their place. Under version 1 of transactions
// the next transaction of a producer has the epoch of the last one, and nothing but this tells a marker that was on its way
// for long from that of the transaction which is open now. Safe for concurrent use; the zero value is ready.
type Fence struct {
	mu      sync.Mutex
	senders map[wire.BrokerID]*sender
}

// sender is one broker that sends markers here.
type sender struct {
	mu xsync.Mutex // held while its markers are appended
	at Attempt
}

// ErrLate says that nobody waits for these markers any more. They are not written.
var ErrLate = kerr.NotEnoughReplicas

// Enter is called before the markers of a request are appended, and leave after. What a sender has sent is appended one
// request after the other; what comes of an earlier attempt than the last is refused with ErrLate.
func (f *Fence) Enter(from wire.BrokerID, a Attempt) (leave func(), err error) {
	f.mu.Lock()
	if f.senders == nil {
		f.senders = make(map[wire.BrokerID]*sender)
	}
	s := f.senders[from]
	if s == nil {
		s = &sender{at: a}
		f.senders[from] = s
	}
	f.mu.Unlock()
	s.mu.Lock()
	if a.before(s.at) && !planted.On(planted.LateMarkersTaken) {
		s.mu.Unlock()
		return nil, ErrLate
	}
	s.at = a
	return s.mu.Unlock, nil
}
