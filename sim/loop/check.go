package loop

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/batch"
)

// checker knows what must hold, from what clients were told and what the metadata says.
type checker struct {
	c     *cluster
	parts []*truth
	txns  *txnTruth
	pids  map[wire.ProducerID]bool
	never map[uint64]bool // records that were refused for certain

	leaders map[epochKey]int // who led a partition in an epoch
	owner   map[int32]string // of the partition, by group generation
	offset  int64            // the greatest committed offset that a client was told of

	acks, reads, commits, elections, cuts, lostUnclean int
}

type epochKey struct {
	i     int
	epoch wire.LeaderEpoch
}

// truth is what is known of one partition's records: by offset, the id of the record that some client was told is there.
type truth struct {
	ids     []uint64 // 0: nobody was told
	where   map[uint64]wire.Offset
	deleted wire.Offset // below it records may be gone: somebody deleted them
	unclean int         // elections that may lose records
	// refusals counts the records that a coordinator could not write.
	refusals int
	// losing is the leader epoch of an unclean election whose leader has not begun yet.
	losing wire.LeaderEpoch
}

// holdsRecords reports whether a partition holds what producers send; the others are the coordinators'.
func holdsRecords(i int) bool { return i < dataPartitions }

// end is the exclusive end of what somebody was told.
func (t *truth) end() wire.Offset { return wire.Offset(len(t.ids)) }

func newChecker(c *cluster) *checker {
	k := &checker{c: c, pids: map[wire.ProducerID]bool{}, never: map[uint64]bool{}, txns: newTxnTruth(), leaders: map[epochKey]int{},
		owner: map[int32]string{}, offset: -1}
	for range c.opts.partitions() {
		k.parts = append(k.parts, &truth{where: map[uint64]wire.Offset{}, losing: wire.NoLeaderEpoch})
	}
	return k
}

func (k *checker) mayLose(i int) bool { return k.parts[i].unclean > 0 }

// maySkip reports whether a producer may find that its earlier records are gone.
func (k *checker) maySkip(i int, acks int16) bool { return acks != -1 || k.mayLose(i) }

func (k *checker) producerID(id wire.ProducerID) {
	if k.pids[id] {
		k.c.violated("producer id %d was given twice", id)
	}
	k.pids[id] = true
}

// refused notes a batch that was sent once, is not stored, and never will be.
func (k *checker) refused(b *sent) {
	for j := range b.count {
		k.never[b.first+uint64(j)] = true
	}
}

// told notes that the record at o is the one with the given id.
func (k *checker) told(i int, o wire.Offset, id uint64, who string) {
	t := k.parts[i]
	for t.end() <= o {
		t.ids = append(t.ids, 0)
	}
	switch was := t.ids[o]; {
	case was != 0 && was != id:
		k.c.violated("%s was told that record %d is at %d of partition %d, where record %d was", who, id, o, i, was)
	case was == 0:
		if first, ok := t.where[id]; ok && first != o {
			k.c.violated("%s was told that record %d of partition %d is at %d and at %d", who, id, i, first, o)
		}
		t.ids[o], t.where[id] = id, o
	}
}

// acked says that a producer with acks=all was told that its batch is stored.
func (k *checker) acked(i int, base wire.Offset, epoch wire.LeaderEpoch, b *sent) {
	k.acks++
	k.c.note("acked", int64(i), int64(base), int64(b.first), int64(b.count))
	if k.replaced(i, epoch) {
		return
	}
	for j := range b.count {
		k.told(i, base+wire.Offset(j), b.first+uint64(j), "a producer")
	}
	k.replicas(i, "an acknowledgement")
}

// replaced reports whether what a leader of epoch says may be lost: an unclean election has put another in its place.
func (k *checker) replaced(i int, epoch wire.LeaderEpoch) bool {
	p, ok := k.c.meta.committed().Partition(nameOf(i).Topic, nameOf(i).Partition)
	return k.mayLose(i) && (!ok || p.LeaderEpoch > epoch)
}

// consumed takes what a consumer has read at at, and gives its next position.
func (k *checker) consumed(i int, at wire.Offset, epoch, last wire.LeaderEpoch, data []byte) (wire.Offset, wire.LeaderEpoch) {
	for rest := data; len(rest) > 0 && k.c.err == nil; {
		b, r, err := batch.Next(rest)
		if err == nil {
			err = b.CheckCRC()
		}
		if err != nil {
			k.c.violated("a consumer at %d of partition %d got broken bytes: %v", at, i, err)
			break
		}
		rest = r
		k.reads++
		// Who asks the leader of an unclean election how far an epoch goes that it does not know is told where a later one began,
		// which may lie behind what he has read; Kafka's consumers go on then, too.
		if b.LeaderEpoch() < last && !k.mayLose(i) {
			k.c.violated("a consumer at %d of partition %d got leader epoch %d after %d", at, i, b.LeaderEpoch(), last)
		}
		last = b.LeaderEpoch()
		if holdsRecords(i) && !k.replaced(i, epoch) {
			k.records(b, func(o wire.Offset, id uint64) {
				if o >= at {
					k.told(i, o, id, "a consumer")
				}
			})
		}
		at = max(at, b.NextOffset())
	}
	return at, last
}

// records walks the ids of a batch.
func (k *checker) records(b batch.Batch, fn func(o wire.Offset, id uint64)) {
	raw, err := b.Records(k.c.codecs, nil, 1<<20)
	if err != nil {
		k.c.violated("records of the batch at %d: %v", b.BaseOffset(), err)
		return
	}
	it := batch.Iterate(raw, b.Count())
	for it.Next() {
		if len(it.Record.Value) == 8 {
			fn(b.BaseOffset()+wire.Offset(it.Record.OffsetDelta), binary.BigEndian.Uint64(it.Record.Value))
		}
	}
}

// member reports whether the committed metadata counts on n's replica as it is now: n is in the ISR or the ELR, and runs in
// the life that is registered.
func (k *checker) member(n *node, i int) bool {
	img := k.c.meta.committed()
	p, ok := img.Partition(nameOf(i).Topic, nameOf(i).Partition)
	counted := ok && (p.InISR(wire.BrokerID(n.id)) || image.Contains(p.ELR, wire.BrokerID(n.id)))
	if !counted || !n.up || !n.serving || n.parts[i] == nil {
		return false
	}
	b, ok := img.Broker(wire.BrokerID(n.id))
	return ok && b.Epoch == n.epoch
}

// replicas wants every member of the ISR and of the ELR to hold all that somebody was told is there.
func (k *checker) replicas(i int, after string) {
	t := k.parts[i]
	if t.losing != wire.NoLeaderEpoch {
		return
	}
	for _, n := range k.c.nodes {
		if k.member(n, i) && n.parts[i].plog.EndOffset() < t.end() {
			k.c.violated("after %s: node %d is in the ISR or ELR of partition %d and its log ends at %d; records up to %d were acknowledged or read",
				after, n.id, i, n.parts[i].plog.EndOffset(), t.end())
		}
	}
}

// metadata looks at a committed change.
func (k *checker) metadata(before, after *image.Image, d *image.Delta) {
	if after.ControllerEpoch() < before.ControllerEpoch() || after.NextProducerID() < before.NextProducerID() {
		k.c.violated("controller epoch or producer ids went back")
	}
	for _, b := range d.Brokers {
		k.registered(after, b)
	}
	for _, t := range d.Topics {
		for _, pd := range t.Partitions {
			if pd.Old == nil || pd.New == nil {
				continue
			}
			k.partition(indexOf(t.Name, pd.ID), after, pd)
		}
	}
}

// registered looks at a broker that was registered again: who comes from an unclean stop may have lost what it acknowledged,
// and is eligible for nothing (R8).
func (k *checker) registered(img *image.Image, b image.BrokerDelta) {
	if b.New == nil || b.Old != nil && b.Old.Epoch == b.New.Epoch {
		return
	}
	n := k.c.nodes[int(b.ID)-1]
	if n.clean != wire.NoBrokerEpoch || b.New.Incarnation != n.incarnation() {
		return
	}
	for i := range k.parts {
		if p, ok := img.Partition(nameOf(i).Topic, nameOf(i).Partition); ok && image.Contains(p.ELR, b.ID) {
			k.c.violated("broker %d comes back from an unclean stop and is in the ELR %v of partition %d", b.ID, p.ELR, i)
		}
	}
}

func (k *checker) partition(i int, img *image.Image, pd image.PartitionDelta) {
	o, n := pd.Old, pd.New
	if n.LeaderEpoch < o.LeaderEpoch || n.PartitionEpoch <= o.PartitionEpoch {
		k.c.violated("partition %d: epochs went from %d, %d to %d, %d", i, o.LeaderEpoch, o.PartitionEpoch, n.LeaderEpoch, n.PartitionEpoch)
	}
	if n.Leader != o.Leader && n.LeaderEpoch == o.LeaderEpoch {
		k.c.violated("partition %d: leader %d after %d in epoch %d", i, n.Leader, o.Leader, n.LeaderEpoch)
	}
	k.c.note("isr", int64(i), int64(n.Leader), int64(n.LeaderEpoch), int64(n.PartitionEpoch))
	k.c.say("%v elr %v last %v recovering %v", n.ISR, n.ELR, n.LastKnownELR, n.Recovering)
	for _, id := range n.ISR {
		b, ok := img.Broker(id)
		if !ok || b.Fenced && !image.Contains(o.ISR, id) {
			k.c.violated("partition %d: broker %d was taken into the ISR, and is fenced or unknown", i, id)
		}
	}
	t := k.parts[i]
	if n.Leader != wire.NoBroker && n.Leader != o.Leader && !image.Contains(o.ISR, n.Leader) && !image.Contains(o.ELR, n.Leader) {
		if !n.Recovering {
			k.c.violated("partition %d: %d was elected out of ISR %v and ELR %v, and it is not said that records may be lost", i, n.Leader, o.ISR, o.ELR)
		}
		if !k.c.opts.Unclean && len(o.LastKnownELR) != 1 {
			k.c.violated("partition %d: %d was elected out of ISR %v and ELR %v, and nobody asked for it", i, n.Leader, o.ISR, o.ELR)
		}
		k.lostUnclean++
		if k.c.opts.Unclean || k.c.opts.FSync != replica.FSyncAlways { // else the last known leader has everything (R10)
			t.unclean++
			t.losing = n.LeaderEpoch
		}
	}
	if n.Leader != wire.NoBroker {
		if b, ok := img.Broker(n.Leader); n.Leader != o.Leader && (!ok || b.Fenced) {
			k.c.violated("partition %d: broker %d was elected, and is fenced or unknown", i, n.Leader)
		}
	}
	k.replicas(i, "a change of the metadata")
}

// elected looks at a replica that begins to lead.
func (k *checker) elected(p *part) {
	k.elections++
	key := epochKey{p.i, p.meta.LeaderEpoch}
	if was, ok := k.leaders[key]; ok && was != p.n.id {
		k.c.violated("partition %d has two leaders, %d and %d, in epoch %d", p.i, was, p.n.id, p.meta.LeaderEpoch)
	}
	k.leaders[key] = p.n.id
	t := k.parts[p.i]
	if t.losing == p.meta.LeaderEpoch {
		k.forget(p.i, k.agrees(p))
		t.losing = wire.NoLeaderEpoch
	}
	img := k.c.meta.committed()
	if m, ok := img.Partition(nameOf(p.i).Topic, nameOf(p.i).Partition); !ok || m.LeaderEpoch != p.meta.LeaderEpoch {
		return // it is late: others lead by now
	}
	k.holds(p, max(t.deleted, t.end()-40), t.end(), "when it began to lead")
}

// agrees is how far a log holds what somebody was told.
func (k *checker) agrees(p *part) wire.Offset {
	t := k.parts[p.i]
	end := min(p.plog.EndOffset(), t.end())
	if !holdsRecords(p.i) {
		return end
	}
	differs := errors.New("differs")
	at := end
	err := p.plog.Scan(p.plog.StartOffset(), end, func(b batch.Batch) error {
		k.records(b, func(o wire.Offset, id uint64) {
			if o < at && t.ids[o] != 0 && t.ids[o] != id {
				at = o
			}
		})
		if at < end {
			return differs
		}
		return nil
	})
	if err != nil && !errors.Is(err, differs) {
		k.c.violated("node %d: read partition %d: %v", p.n.id, p.i, err)
	}
	return at
}

// forget drops what an unclean election may lose: what the new leader does not have (R22).
func (k *checker) forget(i int, end wire.Offset) {
	t := k.parts[i]
	for o := end; o < t.end(); o++ {
		delete(t.where, t.ids[o])
	}
	if end < t.end() {
		t.ids = t.ids[:end]
	}
}

// holds compares a replica's log with what somebody was told.
func (k *checker) holds(p *part, from, end wire.Offset, when string) {
	t := k.parts[p.i]
	from = max(from, p.plog.StartOffset())
	if p.plog.StartOffset() > t.deleted && p.plog.StartOffset() > 0 {
		k.c.violated("node %d: the log of partition %d begins at %d %s; records up to %d were deleted", p.n.id, p.i, p.plog.StartOffset(), when, t.deleted)
		return
	}
	if p.plog.EndOffset() < end {
		k.c.violated("node %d: the log of partition %d ends at %d %s; records up to %d were acknowledged or read", p.n.id, p.i, p.plog.EndOffset(), when, end)
		return
	}
	if !holdsRecords(p.i) {
		return
	}
	err := p.plog.Scan(from, end, func(b batch.Batch) error {
		k.records(b, func(o wire.Offset, id uint64) {
			if o >= from && o < end && t.ids[o] != 0 && t.ids[o] != id {
				k.c.violated("node %d: partition %d holds record %d at %d %s, where record %d was acknowledged or read", p.n.id, p.i, id, o, when, t.ids[o])
			}
		})
		return nil
	})
	if err != nil {
		k.c.violated("node %d: read partition %d: %v", p.n.id, p.i, err)
	}
}

// truncates looks at a follower that is about to cut its log to o.
func (k *checker) truncates(p *part, o wire.Offset) {
	k.cuts++
	if k.member(p.n, p.i) && o < k.parts[p.i].end() && o < p.plog.EndOffset() && k.parts[p.i].losing == wire.NoLeaderEpoch && o >= k.parts[p.i].deleted {
		k.c.violated("node %d is in the ISR of partition %d and cuts its log to %d; records up to %d were acknowledged or read",
			p.n.id, p.i, o, k.parts[p.i].end())
	}
}

// part looks at a replica's state after every change.
func (k *checker) part(p *part) {
	hw, leo := p.state.HW(), p.plog.EndOffset()
	if hw > leo || hw < p.plog.StartOffset() {
		k.c.violated("node %d: the high watermark %d of partition %d lies outside of its log [%d, %d)", p.n.id, hw, p.i, p.plog.StartOffset(), leo)
	}
	if p.leads() {
		if hw < p.floor {
			k.c.violated("node %d: the high watermark of partition %d went from %d to %d in epoch %d", p.n.id, p.i, p.floor, hw, p.meta.LeaderEpoch)
		}
		p.floor = hw
	}
	lso := p.state.LSO()
	if lso > hw {
		k.c.violated("node %d: last stable offset above the high watermark", p.n.id)
	}
	if p.leads() {
		if lso < p.stable {
			k.c.violated("node %d: the last stable offset of partition %d went from %d to %d in epoch %d", p.n.id, p.i, p.stable, lso, p.meta.LeaderEpoch)
		}
		p.stable = lso
	}
}

// synced says that a member was given its part of a generation by the coordinator of epoch. (The generation that a join
// tells is not written down before that: after a change of the coordinator its number may be used again.) A coordinator
// that was replaced and does not know it yet gives again what it has given, as Kafka's does.
func (k *checker) synced(m *member, epoch wire.LeaderEpoch) {
	k.c.note("synced", int64(m.actor.id), int64(m.generation), int64(epoch), b2i(m.owns))
	if epoch >= m.syncedBy {
		if m.generation < m.synced && !k.mayLose(offsetsPartition) {
			k.c.violated("member %s: its assignment of coordinator epoch %d is of generation %d, after %d", m.id, epoch, m.generation, m.synced)
		}
		m.synced, m.syncedBy = m.generation, epoch
	}
	if !m.owns {
		return
	}
	if was, ok := k.owner[m.generation]; ok && was != m.id && !k.mayLose(offsetsPartition) {
		k.c.violated("generation %d has two owners of one partition: %s and %s", m.generation, was, m.id)
	}
	k.owner[m.generation] = m.id
}

// committed says that a member's commit was taken. One that began with what a replaced coordinator told it commits less than was
// committed before, as a consumer of Kafka's does.
func (k *checker) committed(m *member, generation int32, value int64) {
	k.commits++
	k.c.note("committed", int64(generation), value, b2i(m.behind), 0)
	if m.behind {
		k.offset = value
		return
	}
	k.offset = max(k.offset, value)
}

// fetchedOffset says that a member was told an offset, by the coordinator of epoch. One that was replaced and does not know
// it yet tells what it has, as Kafka's does; it can commit nothing.
func (k *checker) fetchedOffset(m *member, epoch wire.LeaderEpoch, asked, value int64) {
	k.c.note("fetched", int64(m.generation), value, asked, 0)
	p, ok := k.c.meta.committed().Partition(nameOf(offsetsPartition).Topic, nameOf(offsetsPartition).Partition)
	replaced := !ok || p.LeaderEpoch > epoch
	asked = min(asked, k.offset) // who was behind may have committed meanwhile
	m.behind = value < asked && replaced
	if value < asked && !replaced && !k.mayLose(offsetsPartition) {
		k.c.violated("member %s of generation %d got offset %d; %d was committed", m.id, m.generation, value, asked)
	}
	if k.mayLose(offsetsPartition) {
		k.offset = min(k.offset, value)
	}
}

// settled looks at the whole cluster after a time without faults.
func (k *checker) settled(limit time.Duration) {
	img := k.c.meta.committed()
	for i := range k.c.opts.partitions() {
		p, ok := img.Partition(nameOf(i).Topic, nameOf(i).Partition)
		if !ok || p.Leader == wire.NoBroker || len(p.ISR) < len(p.Replicas) {
			k.c.violated("partition %d does not recover within %v of the last fault: %+v", i, limit, p)
			return
		}
		leader := k.c.node(int(p.Leader)).parts[i]
		t := k.parts[i]
		for _, id := range p.ISR {
			r := k.c.node(int(id)).parts[i]
			if r == nil || leader == nil {
				k.c.violated("node %d does not serve partition %d, %v after the last fault", id, i, limit)
				return
			}
			k.holds(r, 0, t.end(), "at the end")
			if k.c.err != nil {
				return
			}
			k.equal(leader, r)
		}
	}
	for _, p := range k.c.producers {
		if len(p.queue) > 0 || !p.quiet {
			k.c.violated("producer %d of partition %d still waits for %d acknowledgements, %v after the last fault", p.pid, p.i, len(p.queue), limit)
		}
	}
	for _, r := range k.c.consumers {
		// An unclean election may lose what the coordinator knew of a transaction, which then hangs.
		if end := k.parts[r.i].end(); r.at < end && !(r.committed && k.coordinatorMayLose()) {
			k.c.violated("a consumer of partition %d is at %d of %d, %v after the last fault", r.i, r.at, end, limit)
		}
	}
	if k.c.opts.Txns && k.c.err == nil {
		k.txnsSettled(limit)
	}
}

// equal compares two logs byte by byte below both high watermarks, and the leader's whole log for records that are there
// twice.
func (k *checker) equal(leader, r *part) {
	end := min(leader.state.HW(), r.state.HW())
	from := max(leader.plog.StartOffset(), r.plog.StartOffset())
	sum := func(p *part) (uint64, int) {
		h, n := uint64(14695981039346656037), 0
		err := p.plog.Scan(from, end, func(b batch.Batch) error {
			if b.BaseOffset() < from {
				return nil
			}
			for _, c := range b {
				h = (h ^ uint64(c)) * 1099511628211
			}
			n++
			return nil
		})
		if err != nil {
			k.c.violated("node %d: read partition %d: %v", p.n.id, p.i, err)
		}
		return h, n
	}
	a, n := sum(leader)
	if b, m := sum(r); a != b {
		k.c.violated("partition %d: the logs of %d and %d differ below %d: %d and %d batches", leader.i, leader.n.id, r.n.id, end, n, m)
	}
	k.c.mix(int64(a))
	if !holdsRecords(leader.i) || leader != r {
		return
	}
	seen := map[uint64]wire.Offset{}
	err := leader.plog.Scan(from, leader.plog.EndOffset(), func(b batch.Batch) error {
		k.records(b, func(o wire.Offset, id uint64) {
			if was, ok := seen[id]; ok && b.ProducerID() != wire.NoProducer {
				k.c.violated("partition %d holds record %d twice, at %d and %d", leader.i, id, was, o)
			}
			if k.never[id] {
				k.c.violated("partition %d holds record %d at %d, which was refused", leader.i, id, o)
			}
			seen[id] = o
		})
		return nil
	})
	if err != nil {
		k.c.violated("read partition %d: %v", leader.i, err)
	}
}
