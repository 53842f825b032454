package coord

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
)

// counter is a machine that collects its records.
type counter struct {
	seen []string
	fail string // value whose replay fails
}

func (c *counter) Replay(rec Record, at Pos) error {
	if c.fail != "" && string(rec.Value) == c.fail {
		return errors.New("cannot replay " + c.fail)
	}
	c.seen = append(c.seen, fmt.Sprintf("%d=%s", at.Offset, rec.Value))
	return nil
}

func (c *counter) ReplayMarker(id wire.ProducerID, _ wire.ProducerEpoch, commit bool) error {
	c.seen = append(c.seen, fmt.Sprintf("marker %d %v", id, commit))
	return nil
}

// fakeLog keeps records in memory and commits when it is told to, or after a delay.
type fakeLog struct {
	mu      sync.Mutex
	records []Record
	delay   time.Duration // commits by itself after this; <0: only by commit
	refuse  error
	load    time.Duration
	hw      chan error // answers WaitCommitted; nil: at once
	waiting []func()
	fail    error // the next commits are reported as lost
}

func (l *fakeLog) Append(_ wire.LeaderEpoch, b Batch, done func(wire.Offset, error)) (wire.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return 0, l.refuse
	}
	base := wire.Offset(len(l.records))
	l.records = append(l.records, b.Records...)
	end := wire.Offset(len(l.records))
	err := l.fail
	report := func() { done(end, err) }
	if l.delay < 0 {
		l.waiting = append(l.waiting, report)
	} else {
		time.AfterFunc(l.delay, report)
	}
	return base, nil
}

func (l *fakeLog) commit() {
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

func (l *fakeLog) Load(ctx context.Context, m Machine) (wire.Offset, error) {
	select {
	case <-time.After(l.load):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for i, r := range l.records {
		if err := m.Replay(r, Pos{Offset: wire.Offset(i)}); err != nil {
			return 0, err
		}
	}
	return wire.Offset(len(l.records)), nil
}

func (l *fakeLog) WaitCommitted(_ wire.Offset, done func(error)) {
	if l.hw == nil {
		done(nil)
		return
	}
	go func() { done(<-l.hw) }()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func newRuntime(o Options[*counter]) *Runtime[*counter] {
	if o.NewMachine == nil {
		o.NewMachine = func(wire.PartitionID) *counter { return &counter{} }
	}
	if o.CommitTimeout == 0 {
		o.CommitTimeout = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = quiet()
	}
	return New(o)
}

// write appends one record and answers with what the machine had seen at the decision.
func write(value string) Op[*counter] {
	return func(c *counter, tok Token, _ time.Time) Decision {
		return Decision{
			Batch:   Batch{Records: []Record{{Key: []byte("k"), Value: []byte(value)}}},
			Replies: []Reply{{Token: tok, Body: strings.Join(c.seen, " ")}},
		}
	}
}

func read(c *counter, tok Token, _ time.Time) Decision {
	return Decision{Replies: []Reply{{Token: tok, Body: strings.Join(c.seen, " ")}}}
}

// answers collects replies as text in order.
type answers struct {
	mu  sync.Mutex
	got []string
}

func (a *answers) add(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, fmt.Sprintf(format, args...))
}

func (a *answers) to(name string) func(any, error) {
	return func(body any, err error) {
		if err != nil {
			a.add("%s: error %v", name, err)
			return
		}
		a.add("%s: %v", name, body)
	}
}

func (a *answers) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.got, want) {
		t.Fatalf("answers\n got %q\nwant %q", a.got, want)
	}
	a.got = nil
}

func bubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

func TestRepliesWaitForCommit(t *testing.T) {
	bubble(t, "writes and reads behind them", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		log := &fakeLog{delay: -1}
		r.Elected(3, 1, log)
		synctest.Wait()
		var a answers
		r.Post(3, read, a.to("before"))
		a.check(t, "before: ")
		r.Post(3, write("a"), a.to("w1"))
		r.Post(3, read, a.to("r1"))
		r.Post(3, write("b"), a.to("w2"))
		a.check(t)
		log.waiting[0]()
		a.check(t, "w1: ", "r1: 0=a")
		log.waiting[1]()
		a.check(t, "w2: 0=a")
		r.Post(3, read, a.to("after"))
		a.check(t, "after: 0=a 1=b")
	})
	bubble(t, "deadline answers unknown and the record stays", func(t *testing.T) {
		r := newRuntime(Options[*counter]{CommitTimeout: 2 * time.Second})
		defer r.Close()
		log := &fakeLog{delay: -1}
		r.Elected(0, 1, log)
		synctest.Wait()
		var a answers
		r.Post(0, write("a"), a.to("w"))
		time.Sleep(1999 * time.Millisecond)
		a.check(t)
		time.Sleep(time.Millisecond)
		a.check(t, "w: error "+ErrUnknown.Error())
		log.commit()
		r.Post(0, read, a.to("r"))
		a.check(t, "r: 0=a")
	})
}

func TestRefusedAppendChangesNothing(t *testing.T) {
	bubble(t, "refusal", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		log := &fakeLog{refuse: errors.New("no space")}
		r.Elected(0, 1, log)
		synctest.Wait()
		var a answers
		var parked Token
		r.Post(0, func(_ *counter, tok Token, _ time.Time) Decision { parked = tok; return Decision{} }, a.to("parked"))
		r.Post(0, func(_ *counter, tok Token, _ time.Time) Decision {
			return Decision{
				Batch:   Batch{Records: []Record{{Value: []byte("x")}}},
				Replies: []Reply{{Token: tok, Body: "done"}},
				Effects: []Effect{"never"},
				Soft: func(err error) ([]Reply, []Effect) {
					return []Reply{{Token: parked, Body: "told of " + err.Error()}}, nil
				},
			}
		}, a.to("w"))
		a.check(t, "parked: told of no space", "w: error no space")
		log.refuse = nil
		r.Post(0, write("a"), a.to("again"))
		a.check(t, "again: ")
	})
}

func TestLoading(t *testing.T) {
	bubble(t, "until replayed and committed", func(t *testing.T) {
		r := newRuntime(Options[*counter]{Loaded: func(c *counter, _ Token, _ time.Time) Decision {
			c.seen = append(c.seen, "loaded")
			return Decision{}
		}})
		defer r.Close()
		log := &fakeLog{load: time.Second, hw: make(chan error), records: []Record{{Value: []byte("old")}}}
		var a answers
		r.Post(0, read, a.to("absent"))
		a.check(t, "absent: error "+ErrNotHere.Error())
		r.Elected(0, 1, log)
		r.Post(0, read, a.to("replaying"))
		a.check(t, "replaying: error "+ErrLoading.Error())
		r.Each(func(c *counter, _ Token, _ time.Time) Decision {
			c.seen = append(c.seen, "internal")
			return Decision{}
		})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.Post(0, read, a.to("uncommitted"))
		a.check(t, "uncommitted: error "+ErrLoading.Error())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.WaitActive(ctx, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("WaitActive while loading: %v", err)
		}
		log.hw <- nil
		if err := r.WaitActive(t.Context(), 0); err != nil {
			t.Fatalf("WaitActive: %v", err)
		}
		synctest.Wait()
		r.Post(0, read, a.to("active"))
		a.check(t, "active: 0=old loaded internal")
	})
	bubble(t, "resigned while replaying", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		r.Elected(0, 1, &fakeLog{load: time.Hour})
		synctest.Wait()
		r.Resigned(0, 1)
		r.Close() // hangs unless the load ends
	})
	bubble(t, "leadership lost before the load is committed", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		log := &fakeLog{hw: make(chan error)}
		r.Elected(0, 1, log)
		log.hw <- errors.New("lost")
		if err := r.WaitActive(t.Context(), 0); !errors.Is(err, ErrNotHere) {
			t.Fatalf("WaitActive: %v", err)
		}
	})
	bubble(t, "wait for an election", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		time.AfterFunc(time.Second, func() { r.Elected(5, 1, &fakeLog{load: time.Second}) })
		start := time.Now()
		if err := r.WaitActive(t.Context(), 5); err != nil || time.Since(start) != 2*time.Second {
			t.Fatalf("WaitActive: %v after %v", err, time.Since(start))
		}
	})
}

func TestLostLeadership(t *testing.T) {
	bubble(t, "a commit is reported lost", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		log := &fakeLog{delay: -1, fail: errors.New("truncated")}
		r.Elected(0, 1, log)
		synctest.Wait()
		var a answers
		r.Post(0, func(*counter, Token, time.Time) Decision { return Decision{} }, a.to("parked"))
		r.Post(0, write("a"), a.to("w"))
		r.Post(0, read, a.to("r"))
		a.check(t)
		log.commit()
		no := ": error " + ErrNotHere.Error()
		a.check(t, "parked"+no, "w"+no, "r"+no)
		r.Post(0, read, a.to("later"))
		a.check(t, "later"+no)
		r.Elected(0, 1, log) // the same epoch does not come back
		synctest.Wait()
		r.Post(0, read, a.to("same"))
		a.check(t, "same"+no)
		log.fail = nil
		r.Elected(0, 2, log)
		synctest.Wait()
		r.Post(0, read, a.to("next"))
		a.check(t, "next: 0=a")
	})
	bubble(t, "resigned, of the right epoch only", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		r.Elected(0, 4, &fakeLog{delay: -1})
		synctest.Wait()
		var a answers
		r.Post(0, write("a"), a.to("w"))
		r.Resigned(0, 3)
		a.check(t)
		r.Resigned(0, 4)
		a.check(t, "w: error "+ErrNotHere.Error())
		if ids := r.IDs(); len(ids) != 0 {
			t.Fatalf("IDs: %v", ids)
		}
	})
}

func TestFailedReplay(t *testing.T) {
	bubble(t, "live and on load", func(t *testing.T) {
		var out bytes.Buffer
		r := newRuntime(Options[*counter]{
			Logger:     slog.New(slog.NewTextHandler(&out, nil)),
			NewMachine: func(wire.PartitionID) *counter { return &counter{fail: "bad"} },
		})
		log := &fakeLog{}
		r.Elected(7, 1, log)
		synctest.Wait()
		var a answers
		r.Post(7, write("bad"), a.to("w"))
		a.check(t, "w: error "+ErrFailed.Error())
		r.Post(7, read, a.to("r"))
		a.check(t, "r: error "+ErrFailed.Error())
		r.Elected(7, 2, log)
		if err := r.WaitActive(t.Context(), 7); !errors.Is(err, ErrFailed) {
			t.Fatalf("WaitActive: %v", err)
		}
		r.Close()
		if n := strings.Count(out.String(), "level=ERROR"); n != 2 || !strings.Contains(out.String(), "replay offset 0") {
			t.Fatalf("log:\n%s", out.String())
		}
	})
}

func TestQueueBound(t *testing.T) {
	bubble(t, "what does not fit is refused", func(t *testing.T) {
		r := newRuntime(Options[*counter]{MaxQueued: 2})
		defer r.Close()
		r.Elected(0, 1, &fakeLog{})
		synctest.Wait()
		block := make(chan struct{})
		var a answers
		r.Post(0, func(_ *counter, tok Token, _ time.Time) Decision { <-block; return read(&counter{}, tok, time.Time{}) }, a.to("slow"))
		synctest.Wait()
		for i := range 3 {
			r.Post(0, read, a.to(fmt.Sprint(i)))
		}
		a.check(t, "2: error "+ErrBusy.Error())
		close(block)
		a.check(t, "slow: ", "0: ", "1: ")
	})
}

func TestEffectsFollowReplies(t *testing.T) {
	bubble(t, "after commit, in order", func(t *testing.T) {
		var a answers
		r := newRuntime(Options[*counter]{Effect: func(id wire.PartitionID, epoch wire.LeaderEpoch, e Effect) {
			a.add("effect %v of %d/%d", e, id, epoch)
		}})
		defer r.Close()
		log := &fakeLog{delay: time.Second}
		r.Elected(2, 9, log)
		synctest.Wait()
		r.Post(2, func(_ *counter, tok Token, _ time.Time) Decision {
			d := write("a")(&counter{}, tok, time.Time{})
			d.Effects = []Effect{"x"}
			return d
		}, a.to("w"))
		a.check(t)
		time.Sleep(time.Second)
		a.check(t, "w: ", "effect x of 2/9")
	})
}

func TestMarkersAndProducers(t *testing.T) {
	bubble(t, "replayed like on load", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		r.Elected(0, 1, &fakeLog{})
		synctest.Wait()
		var a answers
		r.Post(0, func(_ *counter, tok Token, _ time.Time) Decision {
			return Decision{Batch: Batch{Marker: &Marker{ProducerRef: ProducerRef{ID: 5}, Commit: true}},
				Replies: []Reply{{Token: tok, Body: "ok"}}}
		}, a.to("m"))
		r.Post(0, read, a.to("r"))
		a.check(t, "m: ok", "r: marker 5 true")
	})
}

func TestCloseAnswersEverything(t *testing.T) {
	bubble(t, "queued, parked and waiting", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		r.Elected(0, 1, &fakeLog{delay: -1})
		synctest.Wait()
		var a answers
		r.Post(0, write("a"), a.to("w"))
		synctest.Wait()
		r.Close()
		a.check(t, "w: error "+ErrNotHere.Error())
		r.Elected(0, 2, &fakeLog{})
		r.Post(0, read, a.to("closed"))
		a.check(t, "closed: error "+ErrNotHere.Error())
	})
}
