package loop

import "time"

// actor is who messages come from and go to: a node, or a client.
type actor struct {
	id     int // nodes from 1, clients from firstClient
	up     bool
	life   int
	paused bool
	late   []func() // what happened to it while it was paused
}

const firstClient = 100

// do lets the actor do something in its present life: at once, or when it goes on after a pause.
func (a *actor) do(life int, fn func()) {
	switch {
	case !a.up || a.life != life:
	case a.paused:
		a.late = append(a.late, func() { a.do(life, fn) })
	default:
		fn()
	}
}

// network carries messages between actors.
type network struct {
	*sched
	cut    [maxNodes + 1][maxNodes + 1]bool // from, to: nodes only; clients reach whom they like
	slow   [maxNodes + 1]time.Duration      // extra latency of everything from and to a node
	resets int                              // of 1,000 messages, how many find their connection broken
}

// maxNodes is the most nodes of a run.
const maxNodes = 5

func (n *network) isCut(from, to int) bool {
	return from <= maxNodes && to <= maxNodes && n.cut[from][to]
}

func (n *network) latency(from, to int) time.Duration {
	d := n.between(100*time.Microsecond, 2*time.Millisecond)
	if n.chance(20) {
		d += n.between(0, 80*time.Millisecond)
	}
	if from <= maxNodes {
		d += n.slow[from]
	}
	if to <= maxNodes {
		d += n.slow[to]
	}
	return d
}

// conn is one connection: what goes over it arrives in order.
type conn struct {
	net      *network
	from, to *actor
	life     int // of from; that of to is looked at when something arrives
	toLife   int
	dead     bool
	there    time.Duration // when the last message arrives at to
	back     time.Duration // and at from
}

func (n *network) dial(from, to *actor) *conn {
	return &conn{net: n, from: from, to: to, life: from.life, toLife: to.life}
}

// breaks ends the connection. What is on its way to the other side may still be read there.
func (c *conn) breaks() { c.dead = true }

// call sends a request and gives done the reply, nil when the connection broke or time ran out before it came: what has
// happened is then not known. handle runs at the other side, and replies any time later, once.
func (c *conn) call(timeout time.Duration, handle func(reply func(any)), done func(any)) {
	n := c.net
	answered := false
	finish := func(r any) {
		if answered {
			return
		}
		answered = true
		c.from.do(c.life, func() { done(r) })
	}
	n.after(timeout, func() {
		if !answered {
			c.dead = true
			finish(nil)
		}
	})
	if c.dead || !c.to.up || c.to.life != c.toLife {
		c.dead = true
		n.after(n.latency(c.from.id, c.to.id), func() { finish(nil) })
		return
	}
	if n.chance(n.resets) {
		c.dead = true
		n.after(n.latency(c.from.id, c.to.id), func() { finish(nil) })
	}
	c.there = max(c.there+1, n.now+n.latency(c.from.id, c.to.id))
	lost := c.dead && n.chance(500) // a broken connection may have delivered it, long after its sender gave up
	if c.dead && !lost {
		c.there += n.between(0, 3*time.Second)
	}
	n.after(c.there-n.now, func() {
		if lost || n.isCut(c.from.id, c.to.id) {
			c.dead = true
			return
		}
		if !c.to.up || c.to.life != c.toLife {
			c.dead = true
			finish(nil)
			return
		}
		c.to.do(c.toLife, func() {
			handle(func(r any) {
				c.back = max(c.back+1, n.now+n.latency(c.to.id, c.from.id))
				n.after(c.back-n.now, func() {
					if c.dead || n.isCut(c.to.id, c.from.id) {
						c.dead = true
						return // the caller finds out when its time is up
					}
					finish(r)
				})
			})
		})
	})
}
