package sim

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"net"
	"sync"
	"testing/synctest"
	"time"
)

// Latency is how long a packet travels one way: evenly between Min and Max, both inclusive.
type Latency struct{ Min, Max time.Duration }

// DefaultLatency is that of machines in one room.
var DefaultLatency = Latency{Min: 50 * time.Microsecond, Max: 250 * time.Microsecond}

// Network connects hosts. Make it, and use it, in one synctest bubble. Safe for concurrent use.
type Network struct {
	seed    uint64
	latency Latency

	mu     sync.Mutex
	hosts  map[string]*Host // by name and by address
	links  map[link]*linkState
	queue  eventQueue
	trace  hash.Hash64
	count  int
	wake   chan struct{} // holds one: the head of the queue has changed
	stop   chan struct{}
	closed bool
	wg     sync.WaitGroup // the deliverer
}

// link is one direction between two hosts.
type link struct{ from, to string }

// linkState is the faults of a link; the zero value has none.
type linkState struct {
	cut   bool
	extra time.Duration
	held  []*event // while cut, in order
}

// event is one thing that reaches a host: a packet, or the end of a wait.
type event struct {
	at    time.Time
	key   uint64 // of the sender; orders events of one instant
	seq   uint64 // of the sender's events
	link  link
	what  byte
	size  int
	apply func() // under Network.mu
}

// NewNetwork starts a network. The caller closes it.
func NewNetwork(seed uint64, l Latency) *Network {
	n := &Network{
		seed: seed, latency: l, hosts: map[string]*Host{}, links: map[link]*linkState{},
		trace: fnv.New64a(), wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	n.wg.Go(n.deliver)
	return n
}

// Close resets every connection, closes every listener and joins the network's goroutine.
func (n *Network) Close() {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return
	}
	n.closed = true
	for _, h := range n.hosts {
		h.dropLocked(net.ErrClosed)
	}
	n.mu.Unlock()
	close(n.stop)
	n.wg.Wait()
}

// Trace is the number of packets delivered so far, and a digest of when, whence and whither each went.
func (n *Network) Trace() (packets int, digest uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.count, n.trace.Sum64()
}

// deliver is the network's goroutine: one event, then everybody else until nobody can go on.
func (n *Network) deliver() {
	for {
		e, wait := n.next()
		if e != nil {
			synctest.Wait()
			continue
		}
		var timer <-chan time.Time
		var t *time.Timer
		if wait > 0 {
			t = time.NewTimer(wait)
			timer = t.C
		}
		select {
		case <-n.wake:
		case <-timer:
		case <-n.stop:
			if t != nil {
				t.Stop()
			}
			return
		}
		if t != nil {
			t.Stop()
		}
	}
}

// next applies the first event if it is due and gives it; else it says how long to wait, 0 for until woken.
func (n *Network) next() (*event, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.queue) > 0 && !n.closed {
		e := n.queue[0]
		if wait := time.Until(e.at); wait > 0 {
			return nil, wait
		}
		heap.Pop(&n.queue)
		if s := n.links[e.link]; s != nil && s.cut {
			s.held = append(s.held, e)
			continue
		}
		n.note(e)
		e.apply()
		return e, 0
	}
	return nil, 0
}

func (n *Network) note(e *event) {
	var b [25]byte
	binary.BigEndian.PutUint64(b[:], uint64(e.at.UnixNano()))
	binary.BigEndian.PutUint64(b[8:], e.key)
	binary.BigEndian.PutUint64(b[16:], e.seq)
	b[24] = e.what
	_, _ = n.trace.Write(b[:]) // a hash never fails
	_, _ = fmt.Fprintf(n.trace, "%s>%s %d", e.link.from, e.link.to, e.size)
	n.count++
}

// sendLocked schedules what for the end of its way; the sender's events keep their order. It returns when.
func (n *Network) sendLocked(from, to *Host, key uint64, seq *uint64, after time.Time, what byte, size int, apply func()) time.Time {
	*seq++
	l := link{from.name, to.name}
	at := time.Now().Add(n.delay(l, key, *seq))
	if at.Before(after) {
		at = after
	}
	n.pushLocked(&event{at: at, key: key, seq: *seq, link: l, what: what, size: size, apply: apply})
	return at
}

func (n *Network) pushLocked(e *event) {
	heap.Push(&n.queue, e)
	if n.queue[0] == e {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// delay is how long a packet travels: a hash of who sent it, never of when or of what else was sent.
func (n *Network) delay(l link, key, seq uint64) time.Duration {
	d := n.latency.Min
	if spread := n.latency.Max - n.latency.Min; spread > 0 {
		d += time.Duration(mix(n.seed, key, seq) % uint64(spread+1))
	}
	if s := n.links[l]; s != nil {
		d += s.extra
	}
	return d
}

// mix is a hash of three numbers (the finalizer of SplitMix64 over their sum with odd factors).
func mix(a, b, c uint64) uint64 {
	x := a*0x9e3779b97f4a7c15 + b*0xc2b2ae3d27d4eb4f + c*0x165667b19e3779f9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Cut holds back every packet from one host to the other until Heal: connections stay open and see nothing, as with a
// pulled cable. It is one way; cut both for a partition.
func (n *Network) Cut(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(from, to).cut = true
}

// Heal ends Cut; what was held back arrives now, in its order.
func (n *Network) Heal(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.linkLocked(from, to)
	s.cut = false
	now := time.Now()
	for i, e := range s.held {
		e.at = now.Add(n.latency.Min + time.Duration(i)) // one nanosecond apart keeps the order
		n.pushLocked(e)
	}
	s.held = nil
}

// Isolate cuts a host off from every other, both ways; Rejoin ends it.
func (n *Network) Isolate(name string) { n.each(name, n.Cut) }

// Rejoin heals every link of a host.
func (n *Network) Rejoin(name string) { n.each(name, n.Heal) }

func (n *Network) each(name string, do func(from, to string)) {
	n.mu.Lock()
	var others []string
	for key, h := range n.hosts {
		if key == h.name && key != name {
			others = append(others, key)
		}
	}
	n.mu.Unlock()
	for _, o := range others {
		do(name, o)
		do(o, name)
	}
}

// Slow adds d to the travel of every packet from one host to the other; 0 ends it.
func (n *Network) Slow(from, to string, d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linkLocked(from, to).extra = d
}

func (n *Network) linkLocked(from, to string) *linkState {
	l := link{from, to}
	if n.links[l] == nil {
		n.links[l] = &linkState{}
	}
	return n.links[l]
}

// Reset breaks every connection between two hosts, at both ends at once (N6).
func (n *Network) Reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ha, ok := n.hosts[a]
	if !ok {
		return
	}
	for c := range ha.conns {
		if c.to.name == b {
			c.resetLocked()
			c.peer.resetLocked()
		}
	}
}

// eventQueue is a heap by time, then sender, then the sender's order.
type eventQueue []*event

func (q eventQueue) Len() int { return len(q) }

func (q eventQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case !a.at.Equal(b.at):
		return a.at.Before(b.at)
	case a.key != b.key:
		return a.key < b.key
	}
	return a.seq < b.seq
}

func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *eventQueue) Push(x any) { *q = append(*q, x.(*event)) }

// Pop implements heap.Interface.
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return e
}
