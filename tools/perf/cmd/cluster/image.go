package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/kajamq/kaja/tools/perf/kw"
)

const (
	imageTopic  = "image"
	imageConfig = "retention.ms"
)

// sight is when a node first showed a change.
type sight struct {
	at  int64
	err error
}

// watcher looks at one node again and again, on a connection of its own, whether it shows a change.
type watcher struct {
	want chan string
	seen chan sight
}

func watchNode(n *node, every time.Duration) (*watcher, error) {
	c, err := kw.Dial(n.addr, time.Second)
	if err != nil {
		return nil, err
	}
	w := &watcher{want: make(chan string), seen: make(chan sight, 1)}
	go func() {
		defer c.C.Close()
		p := kw.NewPacer()
		for want := range w.want {
			w.seen <- look(c, p, every, want)
		}
	}()
	return w, nil
}

// look asks until the answer is there; the answer's arrival counts.
func look(c *kw.Conn, p *kw.Pacer, every time.Duration, want string) sight {
	for end := kw.Now() + int64(askBound); ; {
		got, err := c.TopicConfig(imageTopic, imageConfig, askBound)
		now := kw.Now()
		switch {
		case err != nil:
			return sight{err: err}
		case got == want:
			return sight{at: now}
		case now > end:
			return sight{err: fmt.Errorf("%s is %s and not %s after %v", imageConfig, got, want, askBound)}
		}
		p.Until(now + int64(every))
	}
}

// changer makes changes at the controller's node and has the other nodes watched.
type changer struct {
	conn     *kw.Conn
	watchers []*watcher
	value    int
}

func newChanger(controller *node, others []*node, every time.Duration) (*changer, error) {
	c, err := kw.Dial(controller.addr, time.Second)
	if err != nil {
		return nil, err
	}
	ch := &changer{conn: c, value: 1_000_000}
	for _, n := range others {
		w, err := watchNode(n, every)
		if err != nil {
			ch.close()
			return nil, err
		}
		ch.watchers = append(ch.watchers, w)
	}
	return ch, nil
}

func (ch *changer) close() {
	ch.conn.C.Close()
	for _, w := range ch.watchers {
		close(w.want)
	}
}

// change makes one change and waits until every node has shown it.
func (ch *changer) change(d *delays) error {
	ch.value++
	value := strconv.Itoa(ch.value)
	for _, w := range ch.watchers {
		w.want <- value
	}
	sent := kw.Now()
	err := ch.conn.SetTopicConfig(imageTopic, imageConfig, value, askBound)
	answered := kw.Now()
	last := int64(0)
	for _, w := range ch.watchers {
		s := <-w.seen
		err = errors.Join(err, s.err)
		last = max(last, s.at)
	}
	if err != nil {
		return err
	}
	d.fromSent = append(d.fromSent, float64(max(last, answered)-sent)/1e6)
	d.fromAck = append(d.fromAck, float64(last-answered)/1e6)
	return nil
}

// delays are those of some changes, in milliseconds.
type delays struct {
	fromSent []float64 // from the request to the last node that showed it
	fromAck  []float64 // the same from the answer; below zero where the others were first
}

func (d *delays) figures() kw.Figures {
	f := kw.Figures{"changes": float64(len(d.fromSent))}
	for name, v := range map[string][]float64{"sent": d.fromSent, "answered": d.fromAck} {
		slices.Sort(v)
		for q, at := range map[string]float64{"p50": 0.5, "p99": 0.99, "max": 1} {
			if len(v) > 0 {
				f[name+" "+q+"_ms"] = quantile(v, at)
			}
		}
	}
	return f
}

// quantile is that of sorted values, of which there is one.
func quantile(sorted []float64, q float64) float64 {
	return sorted[max(int(math.Ceil(q*float64(len(sorted)))), 1)-1]
}

// image measures the time until a change of the metadata is on every node: first alone, then while partitions are created.
func image(ctx context.Context, o options) ([]table, error) {
	var alone, busy delays
	created, took := 0, time.Duration(0)
	for round := range o.rounds {
		say("image: round %d of %d", round+1, o.rounds)
		n, d, err := imageOnce(ctx, o, &alone, &busy)
		if err != nil {
			return nil, err
		}
		created, took = created+n, took+d
	}
	creating := busy.figures()
	creating["created"], creating["seconds"] = float64(created), took.Seconds()
	return []table{{
		Title:   fmt.Sprintf("A change of a topic's config, from sending it to the controller's node, and from that node's answer, until the last of three nodes shows it (one look each %v; all of %d rounds)", o.poll, o.rounds),
		Figures: []string{"changes", "sent p50_ms", "sent p99_ms", "sent max_ms", "answered p50_ms", "answered p99_ms", "answered max_ms", "created", "seconds"},
		Rows: []*kw.Row{
			{Part: "image", Subject: "nothing else happens", Samples: []kw.Figures{alone.figures()}},
			{Part: "image", Subject: fmt.Sprintf("while partitions are created, %d a request", o.perTopic), Samples: []kw.Figures{creating}},
		},
	}}, nil
}

func imageOnce(ctx context.Context, o options, alone, busy *delays) (created int, took time.Duration, err error) {
	c, err := start(ctx, o, kaja("kaja"))
	if err != nil {
		return 0, 0, err
	}
	defer c.stop(&err)
	if err := c.create(ctx, imageTopic, 1); err != nil {
		return 0, 0, err
	}
	controller, others, err := c.roles(ctx, c.nodes[0])
	if err != nil {
		return 0, 0, err
	}
	ch, err := newChanger(controller, others, o.poll)
	if err != nil {
		return 0, 0, err
	}
	defer ch.close()
	for range o.changes / o.rounds {
		if err := pause(ctx, rand.N(20*time.Millisecond)); err != nil {
			return 0, 0, err
		}
		if err := ch.change(alone); err != nil {
			return 0, 0, err
		}
	}
	created, took, err = whileCreating(ctx, o, controller, ch, busy)
	if err != nil {
		return 0, 0, err
	}
	now, _, err := c.roles(ctx, c.nodes[0])
	if err == nil && now != controller {
		err = errors.New("the controller has changed")
	}
	return created, took, err
}

// whileCreating makes changes as long as partitions are being created.
func whileCreating(ctx context.Context, o options, controller *node, ch *changer, d *delays) (created int, took time.Duration, err error) {
	creator, err := kw.Dial(controller.addr, time.Second)
	if err != nil {
		return 0, 0, err
	}
	defer creator.C.Close()
	began, done := time.Now(), make(chan error, 1)
	go func() {
		n, err := createMany(creator, o)
		created, took = n, time.Since(began)
		done <- err
	}()
	for {
		if err := errors.Join(ctx.Err(), ch.change(d)); err != nil {
			creator.C.Close() // the creating ends by it
			<-done
			return 0, 0, err
		}
		select {
		case err := <-done:
			return created, took, err
		case <-time.After(rand.N(2 * time.Millisecond)):
		}
	}
}

// createMany creates o.partitions partitions of three replicas, one topic a request.
func createMany(c *kw.Conn, o options) (created int, err error) {
	for created < o.partitions {
		n := min(o.perTopic, o.partitions-created)
		if err := createAgain(c, fmt.Sprintf("many-%d", created), n); err != nil {
			return created, err
		}
		created += n
	}
	return created, nil
}
