package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/txn/state"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// txnBatch is a Produce request with one batch of a transaction.
type txnBatch struct {
	i        int // partition
	id       string
	producer state.Producer
	client   state.Version
	sequence int32
	data     []byte
}

// produceTxn is the handler of a transactional Produce: unless the transaction is open here, its coordinator is asked, and
// the guard that was taken before the question vouches for the answer.
func (n *node) produceTxn(b txnBatch, reply func(any)) {
	p := n.served(b.i)
	if p == nil {
		reply(produced{err: kerr.NotLeaderForPartition})
		return
	}
	if err := p.state.CheckLeader(wire.NoLeaderEpoch); err != nil {
		reply(produced{err: err})
		return
	}
	if p.plog.InTransaction(b.producer.ID, b.producer.Epoch) {
		p.appendTxn(b, 0, reply)
		return
	}
	guard := p.guards.Give(b.producer.ID, b.producer.Epoch, b.sequence, p.meta.LeaderEpoch, n.c.time())
	n.c.check.txns.guards++
	n.enroll(b, func(refused error) {
		if refused != nil {
			reply(produced{err: refused})
			return
		}
		p.appendTxn(b, guard, reply)
	})
}

// appendTxn appends a batch that is admitted by a guard, or by the transaction being open.
func (p *part) appendTxn(b txnBatch, guard uint64, reply func(any)) {
	c := p.n.c
	v, err := log.Validate(b.data, log.ValidateOptions{Config: c.logConfig, Now: c.time(), ProduceVersion: 12, Codecs: c.codecs})
	if err != nil {
		c.violated("validate: %v", err)
		return
	}
	epoch := p.meta.LeaderEpoch
	v.Txn.V2, v.Txn.MustBeOpen = b.client.Bumps(), true
	if guard != 0 {
		p.guards.Admit(v, guard, epoch)
	}
	_, err = p.append(v, wire.NoLeaderEpoch, -1, func(a log.Appended, err error) { reply(produced{err: err, base: a.First, epoch: epoch}) })
	if errors.Is(err, kerr.InvalidTxnState) {
		c.note("guard lost", int64(p.n.id), int64(p.i), int64(b.producer.ID), int64(b.producer.Epoch))
		c.check.txns.guardsLost++
		err = kerr.NotEnoughReplicas
	}
	if err != nil {
		reply(produced{err: err})
	}
}

// enrolled is the coordinator's answer to a node that asks about a partition.
type enrolled struct {
	err     *kerr.Error
	missing bool
}

// enroll adds the partition of b to the transaction of a client that bumps epochs, and asks for others whether it is in
// it. done is told why the batch may not be appended.
func (n *node) enroll(b txnBatch, done func(refused error)) {
	leader, _ := n.leaderOf(txnPartition)
	if leader == wire.NoBroker {
		done(kerr.NotEnoughReplicas)
		return
	}
	to := n.c.node(int(leader))
	r := state.AddRequest{ID: b.id, Producer: b.producer, Partitions: []wire.TopicPartition{nameOf(b.i)}, Client: b.client, Cluster: state.V2}
	n.c.net.dial(&n.actor, &to.actor).call(rpcTimeout, func(reply func(any)) { to.answerEnroll(r, reply) }, func(a any) {
		got, ok := a.(enrolled)
		answer := func() { done(refusal(got, b.client)) }
		switch {
		case !ok:
			done(kerr.NotEnoughReplicas)
		case n.lateAnswers > 0:
			n.waiting++
			n.later(n.lateAnswers, func() { n.waiting--; answer() })
		default:
			answer()
		}
	})
}

// answerEnroll is the handler of a node's AddPartitionsToTxn.
func (n *node) answerEnroll(r state.AddRequest, reply func(any)) {
	n.askTxns(func(s *state.State, tok coord.Token, now time.Time) coord.Decision {
		if r.Client.Bumps() {
			return s.AddPartitions(tok, now, r)
		}
		return s.Verify(tok, r)
	}, func(body any, err error) {
		switch got := body.(type) {
		case state.Reply:
			reply(enrolled{err: got.Err})
		case state.VerifyReply:
			reply(enrolled{err: got.Err, missing: len(got.Missing) > 0})
		default:
			reply(enrolled{err: kerr.CoordinatorNotAvailable})
		}
	})
}

// refusal is what a client is told after the coordinator's answer; nil if its batch may be appended.
func refusal(got enrolled, client state.Version) error {
	again := []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator}
	switch {
	case got.missing:
		return kerr.InvalidTxnState
	case got.err == nil:
		return nil
	case got.err == kerr.ProducerFenced:
		return kerr.InvalidProducerEpoch
	case slices.Contains(again, got.err), got.err == kerr.ConcurrentTransactions && !client.Bumps():
		return kerr.NotEnoughReplicas
	}
	return got.err
}
