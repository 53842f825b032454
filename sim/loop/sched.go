package loop

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// start is the virtual time at which a run begins.
var start = time.Unix(1_700_000_000, 0).UTC()

// event is something that will happen.
type event struct {
	at  time.Duration
	seq uint64
	fn  func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *events) Push(x any) { *q = append(*q, x.(event)) }

// Pop implements heap.Interface.
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// mark is one line of the trace.
type mark struct {
	at         time.Duration
	what       string
	a, b, c, d int64
	text       string
}

// traceSize is how many of the last marks a failure shows.
const traceSize = 400

// sched is the scheduler: virtual time, the events to come, chance, and the first violation.
type sched struct {
	now    time.Duration
	queue  events
	seq    uint64
	count  int
	rng    *rand.Rand
	digest uint64
	trace  []mark // ring
	marks  int
	err    error
}

func newSched(seed uint64) *sched {
	return &sched{rng: rand.New(rand.NewPCG(seed, 0x6c6f6f70)), digest: 14695981039346656037, trace: make([]mark, traceSize)}
}

// time is the present as the cores see it.
func (s *sched) time() time.Time { return start.Add(s.now) }

// after lets fn happen d from now.
func (s *sched) after(d time.Duration, fn func()) {
	s.seq++
	heap.Push(&s.queue, event{at: s.now + max(d, 0), seq: s.seq, fn: fn})
}

// run lets events happen up to end, or to the first violation.
func (s *sched) run(end time.Duration) {
	for len(s.queue) > 0 && s.err == nil && s.queue[0].at <= end {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		s.count++
		e.fn()
	}
	if s.err == nil {
		s.now = end
	}
}

func (s *sched) mix(v int64) {
	const prime = 1099511628211
	for range 8 {
		s.digest = (s.digest ^ uint64(v&0xff)) * prime
		v >>= 8
	}
}

// note takes an event into the digest and the trace.
func (s *sched) note(what string, a, b, c, d int64) {
	s.mix(int64(s.now))
	for i := range len(what) {
		s.digest = (s.digest ^ uint64(what[i])) * 1099511628211
	}
	s.mix(a)
	s.mix(b)
	s.mix(c)
	s.mix(d)
	s.trace[s.marks%traceSize] = mark{at: s.now, what: what, a: a, b: b, c: c, d: d}
	s.marks++
}

// say adds text to the last mark; it is not part of the digest.
func (s *sched) say(format string, args ...any) {
	if s.marks > 0 {
		s.trace[(s.marks-1)%traceSize].text = fmt.Sprintf(format, args...)
	}
}

// violated ends the run.
func (s *sched) violated(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("at %v, event %d: %s", s.now, s.count, fmt.Sprintf(format, args...))
	}
}

// history gives the last marks as text.
func (s *sched) history() string {
	var b strings.Builder
	for i := max(0, s.marks-traceSize); i < s.marks; i++ {
		m := s.trace[i%traceSize]
		fmt.Fprintf(&b, "%12v %-18s %d %d %d %d %s\n", m.at, m.what, m.a, m.b, m.c, m.d, m.text)
	}
	return b.String()
}

// between draws a duration.
func (s *sched) between(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(s.rng.Int64N(int64(hi-lo)+1))
}

// chance is true in p of 1,000 cases.
func (s *sched) chance(p int) bool { return s.rng.IntN(1000) < p }
