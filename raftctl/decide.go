package raftctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
	"github.com/twmb/franz-go/pkg/kerr"
)

// op is one request to the decide loop.
type op struct {
	ctx context.Context
	// decide reads img. An error is the answer to the whole request.
	decide func(img *image.Image) ([]coordrec.MetadataRecord, error)
	// done takes the answer: nil once the records are committed and published. Buffered.
	done chan error
}

// pending is what one pass of the loop has decided: an entry under way, and the answers that wait for it.
type pending struct {
	answers []answer
	future  raft.ApplyFuture // nil: nothing to write
	at      time.Time        // of the proposal
	stint   *stint
}

// answer is what one request is told once the entries up to its own are settled.
type answer struct {
	op    *op
	err   error // the decision itself
	wrote bool  // it has records in the entry
}

// stint is one time of leading. Once an entry of it was lost nothing decided after it counts.
type stint struct {
	epoch  wire.ControllerEpoch
	before wire.BrokerID // who was the controller until then
	number uint64        // of the last entry
	spec   *image.Image  // committed, plus everything under way
	open   int           // entries proposed and not known to be settled; settled sends
	settle chan struct{} // one for each settled entry, by the settle goroutine
	over   chan struct{} // closed when nobody listens to settle any more
	lost   error         // written by the settle goroutine while an entry is open
}

// submit runs decide on the loop and waits for the answer. When ctx ends first the answer is unknown.
func (c *Controller) submit(ctx context.Context, decide func(img *image.Image) ([]coordrec.MetadataRecord, error)) error {
	o := &op{ctx: ctx, decide: decide, done: make(chan error, 1)}
	select {
	case <-c.stop:
		return errNotController()
	default:
	}
	select {
	case c.ops <- o:
	case <-c.stop:
		return errNotController()
	case <-ctx.Done():
		return errUnknown("The request timed out before it was decided.")
	}
	select {
	case err := <-o.done:
		return err
	case <-ctx.Done():
		return errUnknown("The request timed out; it may still be carried out.")
	case <-c.stop:
	}
	select {
	case err := <-o.done:
		return err
	default:
		return errUnknown("The controller stopped; the request may have been carried out.")
	}
}

// decide is the loop: follows raft's leadership, refuses while another leads.
func (c *Controller) decide() {
	defer close(c.pending)
	leads := false
	for {
		if leads {
			var err error
			if leads, err = c.lead(); err != nil {
				c.opts.Logger.Warn("metadata leadership ended", "err", err)
			}
			continue
		}
		select {
		case leads = <-c.leads:
		case o := <-c.ops:
			o.done <- errNotController()
		case <-c.stop:
			return
		}
	}
}

// lead decides until raft has something new to say of the leadership, which it returns.
func (c *Controller) lead() (bool, error) {
	st, err := c.claim()
	if err != nil {
		return false, err
	}
	defer close(st.over)
	c.opts.Logger.Info("this node is the active controller", "controller_epoch", st.epoch)
	c.metrics.active.Set(1)
	defer c.metrics.active.Set(0)
	c.leading.Store(true)
	defer c.leading.Store(false)
	select {
	case c.live <- struct{}{}:
	default:
	}
	watch := c.newWatch(st.before)
	defer watch.stop()
	for {
		select {
		case leads := <-c.leads:
			return leads, raft.ErrLeadershipLost
		case o := <-c.ops:
			c.work(watch, func() { c.handle(st, o) })
		case <-watch.sessions:
			c.expire(st, watch)
		case <-watch.balance:
			c.work(watch, func() { c.balance(st) })
		case <-watch.raise:
			c.work(watch, func() { c.raise(st) })
		case <-st.settle:
			c.work(watch, func() { c.settled(st) })
		case <-c.stop:
			return false, nil
		}
	}
}

// claim waits for what predecessors have committed, takes the next controller epoch and writes what a new cluster begins
// with.
func (c *Controller) claim() (*stint, error) {
	if err := c.answered(c.raft.Barrier(0)); err != nil {
		return nil, fmt.Errorf("wait for what predecessors have committed: %w", err)
	}
	st := &stint{spec: c.committed(), before: c.committed().ControllerID(), settle: make(chan struct{}, pendingOps), over: make(chan struct{})}
	e := claimEntry(st.spec, c.opts.NodeID, c.opts.Levels)
	st.epoch = e.epoch
	if err := c.open(st, e); err != nil {
		return nil, fmt.Errorf("claim controller epoch %d: %w", st.epoch, err)
	}
	return st, nil
}

// claimEntry is the first entry of a stint that begins on img; levels are those of a new cluster (Options.Levels).
func claimEntry(img *image.Image, id wire.BrokerID, levels map[string]int16) entry {
	e := entry{epoch: img.ControllerEpoch() + 1}
	e.records = []coordrec.MetadataRecord{&coordrec.ClaimControllerRecord{Epoch: e.epoch, NodeID: id}}
	if _, ok := img.Feature(image.FeatureMetadataVersion); !ok {
		e.records = append(e.records, bootstrap(levels)...)
	}
	return e
}

// open writes the first entry of a stint and waits for it.
func (c *Controller) open(st *stint, e entry) error {
	f := c.raft.Apply(e.encode(), 0)
	if err := c.answered(f); err != nil {
		return err
	}
	out := f.Response().(*outcome)
	if out.dropped {
		return errors.New("another controller was faster")
	}
	if out.err != nil {
		return out.err
	}
	select {
	case <-out.published:
	case <-c.stop:
		return ErrClosed
	}
	st.spec = c.committed()
	return nil
}

// settled lets go of the speculative image when nothing is under way: the committed one is the same and holds the real
// offset.
func (c *Controller) settled(st *stint) {
	if st.open--; st.open == 0 {
		st.spec = c.committed()
	}
}

// handle decides o and whatever else waits by now, and proposes the records of all of them as one entry.
func (c *Controller) handle(st *stint, o *op) {
	p := &pending{stint: st}
	e := entry{epoch: st.epoch, number: st.number + 1}
	data := e.encode()
	empty := len(data)
	for {
		if o.ctx.Err() != nil {
			o.done <- errUnknown("The request timed out before it was decided.")
		} else {
			var a answer
			data, a = c.decideOne(st, o, data)
			p.answers = append(p.answers, a)
		}
		if len(data) >= batchBytes || len(p.answers) >= batchOps {
			break
		}
		select {
		case o = <-c.ops:
			continue
		default:
		}
		break
	}
	if len(data) > empty {
		st.number++
		st.open++
		c.metrics.proposed(len(data))
		p.at, p.future = time.Now(), c.raft.Apply(data, 0)
	}
	if p.future == nil && st.open == 0 {
		c.answer(p) // nothing is under way that it could rest on
		return
	}
	c.enqueue(st, p)
}

// decideOne appends the records of one decision to the entry under construction.
func (c *Controller) decideOne(st *stint, o *op, data []byte) ([]byte, answer) {
	a := answer{op: o}
	records, err := o.decide(st.spec)
	if err != nil || len(records) == 0 {
		a.err = err
		return data, a
	}
	body := appendRecords(nil, records)
	if entryHead+len(body) > maxEntryBytes {
		a.err = refuse(kerr.PolicyViolation, "The request needs a metadata entry of %d bytes, the most is %d.", entryHead+len(body), maxEntryBytes)
		return data, a
	}
	if err := st.take(records); err != nil {
		c.opts.Logger.Error("a decision does not fit the metadata it was made of", "err", err)
		a.err = refuse(kerr.UnknownServerError, "The controller made records that do not fit its metadata.")
		return data, a
	}
	a.wrote = true
	return append(data, body...), a
}

// take applies records of the entry under construction to the speculative image, which an error leaves as it is.
func (st *stint) take(records []coordrec.MetadataRecord) error {
	spec, _, err := st.spec.With(image.Position{Offset: st.spec.Offset() + 1, Entry: st.number + 1}, records)
	if err == nil {
		st.spec = spec
	}
	return err
}

func (c *Controller) enqueue(st *stint, p *pending) {
	for {
		select {
		case c.pending <- p:
			return
		case <-st.settle:
			c.settled(st)
		case <-c.stop:
			for _, a := range p.answers {
				a.op.done <- errUnknown("The controller stopped; the request may have been carried out.")
			}
			return
		}
	}
}

// settle answers decisions in their order.
func (c *Controller) settle() {
	for p := range c.pending {
		c.answer(p)
		if p.future != nil {
			select {
			case p.stint.settle <- struct{}{}:
			case <-p.stint.over:
			case <-c.stop:
			}
		}
	}
}

// answer waits for what p rests on and answers it.
func (c *Controller) answer(p *pending) {
	err := c.await(p)
	for _, a := range p.answers {
		switch {
		case err == nil:
			a.op.done <- a.err
		case !a.wrote:
			a.op.done <- errNotController() // it wrote nothing, and what it saw is not certain
		default:
			a.op.done <- err
		}
	}
	if p.future != nil && err == nil {
		c.metrics.committed(time.Since(p.at))
	}
}

// await says what became of an entry: nil once it is committed and published. After an entry of the stint was lost, what
// was decided later rested on it.
func (c *Controller) await(p *pending) error {
	st := p.stint
	if p.future == nil {
		if st.lost != nil {
			return errNotController()
		}
		return nil
	}
	if err := c.answered(p.future); err != nil {
		if st.lost == nil {
			st.lost = err
		}
		return errUnknown("The controller lost its leadership; the request may still be carried out.")
	}
	out := p.future.Response().(*outcome)
	switch {
	case out.err != nil:
		st.lost = out.err
		return errUnknown("The controller failed; the request may have been carried out.")
	case out.dropped:
		if st.lost == nil {
			st.lost = errNotController()
		}
		return errNotController()
	}
	select {
	case <-out.published:
		return nil
	case <-c.stop:
		return errUnknown("The controller stopped; the request may have been carried out.")
	}
}
