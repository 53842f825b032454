package loop

import (
	"cmp"
	"slices"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// verdict is what a producer was told of its transaction.
type verdict int

const (
	notTold verdict = iota
	committed
	aborted
)

// String names it.
func (o verdict) String() string { return [...]string{"not told", "committed", "aborted"}[o] }

// txn is a transaction as its producer and its readers see it.
type txn struct {
	p        *txnProducer
	producer state.Producer
	records  []placed
	acks     int
	broken   bool // some of it was given up: it is not committed
	fenced   bool

	tried  bool // its commit was asked for
	doubt  bool // an end that was asked for was not answered
	behind bool // when its end was first asked for, a later incarnation had been given
	told   verdict
	shown  bool // a reader of what is committed has seen a record of it
	hidden bool // or skipped one
}

// placed is a record of a partition.
type placed struct {
	i  int
	id uint64
}

// txnTruth is what is known of transactions, and counts what came about.
type txnTruth struct {
	all     []*txn
	owner   map[uint64]*txn
	holders map[state.Producer]*txnProducer
	newest  map[string]wire.ProducerEpoch // by transactional id: the last epoch that anybody was given
	ends    map[state.Producer]bool       // by the marker's producer, of version 2: the outcome

	commits, aborts, fenced, guards, guardsLost, owed, timeouts, markerRetries, loading int
}

func newTxnTruth() *txnTruth {
	return &txnTruth{owner: map[uint64]*txn{}, holders: map[state.Producer]*txnProducer{},
		newest: map[string]wire.ProducerEpoch{}, ends: map[state.Producer]bool{}}
}

// txnsMayLose reports whether an election may have lost what transactions rest on.
func (k *checker) txnsMayLose() bool {
	return slices.ContainsFunc(k.parts, func(t *truth) bool { return t.unclean > 0 })
}

// coordinatorMayLose reports whether an election may have lost what the coordinator knew.
func (k *checker) coordinatorMayLose() bool { return k.c.opts.Txns && k.mayLose(txnPartition) }

// begins notes a transaction of a producer's present incarnation.
func (k *checker) begins(p *txnProducer, of state.Producer) *txn {
	t := &txn{p: p, producer: of}
	k.txns.all = append(k.txns.all, t)
	return t
}

// writes notes a batch before it is sent.
func (k *checker) writes(t *txn, i int, b *sent) {
	for j := range b.count {
		id := b.first + uint64(j)
		t.records = append(t.records, placed{i, id})
		k.txns.owner[id] = t
	}
}

// given notes that a producer was given an incarnation.
func (k *checker) given(p *txnProducer) {
	x := k.txns
	if was := x.holders[p.now]; was != nil && was != p && !k.txnsMayLose() {
		k.c.violated("producer id %d, epoch %d of %s was given to two", p.now.ID, p.now.Epoch, p.id)
	}
	x.holders[p.now] = p
	x.newest[p.id] = max(x.newest[p.id], p.now.Epoch)
	k.c.note("producer", int64(p.actor.id), int64(p.now.ID), int64(p.now.Epoch), 0)
}

// ends notes that the end of a transaction is asked for.
func (k *checker) ends(t *txn, commit bool) {
	if !t.tried && !t.doubt {
		t.behind = k.txns.newest[t.p.id] > t.producer.Epoch
	}
	t.tried = t.tried || commit
}

// concluded notes the answer.
func (k *checker) concluded(t *txn, commit bool) {
	k.c.note("txn", int64(t.p.actor.id), int64(t.producer.ID), int64(t.producer.Epoch), b2i(commit))
	if commit {
		t.told = committed
		k.txns.commits++
	} else {
		t.told = aborted
		k.txns.aborts++
	}
	if k.txnsMayLose() {
		return
	}
	if commit && t.behind {
		k.c.violated("producer %s %v has committed after a later incarnation was given", t.p.id, t.producer)
	}
	k.agree(t, "its producer")
}

// undecided notes that the producer is told that it is fenced.
func (k *checker) undecided(t *txn) {
	if !t.doubt { // its end was asked for once, and refused
		t.tried = false
		k.agree(t, "its producer")
	}
}

// abortedFor reports whether the coordinator has aborted a transaction by itself: it ran out of time, or another
// incarnation took its place. Under version 2 a commit that comes then is answered INVALID_TXN_STATE.
func (k *checker) abortedFor(t *txn) bool {
	commit, ended := k.txns.ends[state.Producer{ID: t.producer.ID, Epoch: t.producer.Epoch + 1}]
	return ended && !commit
}

// agree wants what everybody was told of a transaction to be one thing.
func (k *checker) agree(t *txn, who string) {
	switch {
	case t.shown && t.hidden:
		k.c.violated("the transaction of %s %v is torn, finds %s: some of its records are there for readers of what is committed, others are not", t.p.id, t.producer, who)
	case t.shown && (!t.tried || t.told == aborted):
		k.c.violated("the transaction of %s %v (%v, a commit asked for: %v) is read as committed, finds %s", t.p.id, t.producer, t.told, t.tried, who)
	case t.hidden && t.told == committed:
		k.c.violated("the transaction of %s %v was committed, and is skipped as aborted, finds %s", t.p.id, t.producer, who)
	}
}

// decided notes a committed decision.
func (k *checker) decided(m state.SendMarkers) {
	if !m.Version.Bumps() || k.txnsMayLose() {
		return
	}
	if was, ok := k.txns.ends[m.Producer]; ok && was != m.Commit {
		k.c.violated("the transaction of %s that ends with %v was decided twice, each time otherwise", m.ID, m.Producer)
	}
	k.txns.ends[m.Producer] = m.Commit
}

// seen says that a reader of what is committed was shown a record, or skipped it.
func (k *checker) seen(id uint64, shown bool, who string) {
	t := k.txns.owner[id]
	if t == nil || k.txnsMayLose() {
		return
	}
	t.shown, t.hidden = t.shown || shown, t.hidden || !shown
	k.agree(t, who)
}

// readCommitted takes what a leader gave a reader of what is committed, as a client takes it.
func (k *checker) readCommitted(at wire.Offset, data []byte, skip []log.AbortedTransaction) {
	slices.SortStableFunc(skip, func(a, b log.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	skipping := map[wire.ProducerID]bool{}
	for rest := data; len(rest) > 0 && k.c.err == nil; {
		b, r, err := batch.Next(rest)
		if err != nil {
			return // said already
		}
		rest = r
		for len(skip) > 0 && skip[0].FirstOffset <= b.LastOffset() {
			skipping[skip[0].ProducerID] = true
			skip = skip[1:]
		}
		if end, ok := k.marker(b); ok && !end.Commit {
			delete(skipping, b.ProducerID())
		}
		if !b.Control() && b.Transactional() {
			k.records(b, func(o wire.Offset, id uint64) {
				if o >= at {
					k.seen(id, !skipping[b.ProducerID()], "a reader")
				}
			})
		}
	}
}

func (k *checker) marker(b batch.Batch) (batch.EndTxn, bool) {
	if !b.Control() {
		return batch.EndTxn{}, false
	}
	end, ok, err := b.EndTxn(k.c.codecs)
	if err != nil {
		k.c.violated("the marker at %d: %v", b.BaseOffset(), err)
	}
	return end, ok
}

// known is what a log tells of a producer.
type known struct {
	epoch       wire.ProducerEpoch
	last        int32
	coordinator int32
	first       wire.Offset
}

// producersOf reads a whole log for what it tells of its producers.
func (k *checker) producersOf(p *part) map[wire.ProducerID]known {
	out := map[wire.ProducerID]known{}
	err := p.plog.Scan(p.plog.StartOffset(), p.plog.EndOffset(), func(b batch.Batch) error {
		if b.ProducerID() == wire.NoProducer {
			return nil
		}
		s, ok := out[b.ProducerID()]
		if !ok {
			s = known{epoch: wire.NoEpoch, last: wire.NoSequence, coordinator: -1, first: wire.NoOffset}
		}
		if s.epoch != b.ProducerEpoch() {
			s.epoch, s.last = b.ProducerEpoch(), wire.NoSequence
		}
		if end, ok := k.marker(b); ok {
			s.coordinator, s.first = end.CoordinatorEpoch, wire.NoOffset
		} else {
			s.last = b.LastSequence()
			if b.Transactional() && s.first == wire.NoOffset {
				s.first = b.BaseOffset()
			}
		}
		out[b.ProducerID()] = s
		return nil
	})
	if err != nil {
		k.c.violated("node %d: read partition %d: %v", p.n.id, p.i, err)
	}
	return out
}

// rewound wants the producer state of a log that was cut to be that of what is left. What lies before the log's start
// nobody can read.
func (k *checker) rewound(p *part) {
	if !k.c.opts.Txns || !holdsRecords(p.i) || p.plog.StartOffset() > 0 {
		return
	}
	want, got := k.producersOf(p), p.plog.Producers()
	for _, g := range got {
		if w, ok := want[g.ID]; !ok || w != (known{g.Epoch, g.LastSequence, g.CoordinatorEpoch, g.TxnFirst}) {
			k.c.violated("node %d: after a truncation to %d of partition %d producer %d is %+v, and its log says %+v", p.n.id, p.plog.EndOffset(), p.i, g.ID, g, w)
		}
	}
	if len(got) != len(want) {
		k.c.violated("node %d: after a truncation to %d of partition %d there are %d producers, and its log has %d", p.n.id, p.plog.EndOffset(), p.i, len(got), len(want))
	}
}

// txnsSettled looks at transactions after a time without faults.
func (k *checker) txnsSettled(limit time.Duration) {
	for _, p := range k.c.writers {
		if !p.quiet {
			k.c.violated("producer %s %v does not come to an end (%d), %v after the last fault", p.id, p.now, p.stage, limit)
			return
		}
	}
	if k.txnsMayLose() {
		return
	}
	shown := map[uint64]bool{}
	for i := range dataPartitions {
		k.outcomes(i, shown, limit)
	}
	for _, t := range k.txns.all {
		for _, r := range t.records {
			if (t.shown || t.told == committed) && !shown[r.id] && !k.gone(r) {
				k.c.violated("the transaction of %s %v was committed (%v), and record %d of partition %d is not there", t.p.id, t.producer, t.told, r.id, r.i)
				return
			}
		}
	}
	k.sameProducers()
	k.coordinatorSettled()
}

// gone reports whether a record may have been deleted.
func (k *checker) gone(r placed) bool {
	o, ok := k.parts[r.i].where[r.id]
	return ok && o < k.parts[r.i].deleted
}

// outcomes reads the log of a partition's leader for the outcome of each transaction.
func (k *checker) outcomes(i int, shown map[uint64]bool, limit time.Duration) {
	p := k.leader(i)
	open := map[wire.ProducerID][]uint64{}
	err := p.plog.Scan(p.plog.StartOffset(), p.plog.EndOffset(), func(b batch.Batch) error {
		if end, ok := k.marker(b); ok {
			for _, id := range open[b.ProducerID()] {
				shown[id] = shown[id] || end.Commit
				k.seen(id, end.Commit, "who reads the whole log")
			}
			delete(open, b.ProducerID())
			return nil
		}
		k.records(b, func(_ wire.Offset, id uint64) {
			if b.Transactional() {
				open[b.ProducerID()] = append(open[b.ProducerID()], id)
			}
		})
		return nil
	})
	if err != nil {
		k.c.violated("read partition %d: %v", i, err)
	}
	for _, id := range sortedKeys(open) {
		k.c.violated("the transaction of producer %d in partition %d is open, %v after the last fault; its records are %v", id, i, limit, open[id])
	}
	if lso, hw := p.state.LSO(), p.state.HW(); lso != hw {
		k.c.violated("the last stable offset of partition %d is %d, and its high watermark %d, %v after the last fault", i, lso, hw, limit)
	}
}

func (k *checker) leader(i int) *part {
	p, _ := k.c.meta.committed().Partition(nameOf(i).Topic, nameOf(i).Partition)
	return k.c.node(int(p.Leader)).parts[i]
}

// sameProducers wants every replica to know of each producer what the leader knows. A replica that has begun anew behind
// deleted records does not know what lay before.
func (k *checker) sameProducers() {
	for i := range dataPartitions {
		leader := k.leader(i)
		want := leader.plog.Producers()
		for _, n := range k.c.nodes {
			if !k.member(n, i) {
				continue
			}
			got := n.parts[i].plog.Producers()
			if k.parts[i].deleted == 0 && !slices.Equal(got, want) {
				k.c.violated("node %d and the leader %d of partition %d do not know the same of its producers: %+v and %+v", n.id, leader.n.id, i, got, want)
			}
		}
	}
}

// coordinatorSettled wants nothing to be open at the coordinator, and its state to be that of its log.
func (k *checker) coordinatorSettled() {
	p := k.leader(txnPartition)
	if p.txns == nil {
		k.c.violated("node %d leads the transactions and does not coordinate them", p.n.id)
		return
	}
	again := state.New(state.Config{})
	if err := p.replay(p.plog.EndOffset(), again.Replay); err != nil {
		k.c.violated("node %d: replay the transactions: %v", p.n.id, err)
	}
	if live, replayed := p.txns.state.Image(), again.Image(); live != replayed {
		k.c.violated("the live state of transactions is not what replay makes of its log:\n%s\n%s", live, replayed)
	}
	for _, id := range p.txns.state.IDs() {
		t, _ := p.txns.state.Lookup(id)
		switch t.Status {
		case state.Ongoing, state.PrepareCommit, state.PrepareAbort:
			k.c.violated("transaction %s is %v at the end", id, t.Status)
		}
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
