package coord

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// note is an operation of a timer that says when it ran.
func note(out *[]string, name string, start time.Time) Op[*counter] {
	return func(_ *counter, _ Token, now time.Time) Decision {
		*out = append(*out, fmt.Sprintf("%s at %v", name, now.Sub(start)))
		return Decision{}
	}
}

func TestTimers(t *testing.T) {
	set := func(ts ...Timer[*counter]) Op[*counter] {
		return func(_ *counter, tok Token, _ time.Time) Decision {
			d := Decision{Replies: []Reply{{Token: tok, Body: "set"}}}
			d.Soft = func(error) ([]Reply, []Effect) {
				var fx []Effect
				for _, t := range ts {
					fx = append(fx, t)
				}
				return nil, fx
			}
			return d
		}
	}
	ignore := func(any, error) {}
	bubble(t, "order, replacement, cancellation", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		r.Elected(0, 1, &fakeLog{})
		synctest.Wait()
		start := time.Now()
		var ran []string
		at := func(key string, d time.Duration) Timer[*counter] {
			return Timer[*counter]{Key: key, At: start.Add(d), Op: note(&ran, fmt.Sprint(key, d), start)}
		}
		r.Post(0, set(at("b", 2*time.Second), at("a", 2*time.Second), at("c", time.Second), at("d", time.Second)), ignore)
		r.Post(0, set(at("c", 3*time.Second), Timer[*counter]{Key: "d"}), ignore)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []string{"b2s at 2s", "a2s at 2s", "c3s at 3s"}
		if !slices.Equal(ran, want) {
			t.Fatalf("timers %q, want %q", ran, want)
		}
	})
	bubble(t, "a session whose heartbeat waits in the queue is not expired", func(t *testing.T) {
		r := newRuntime(Options[*counter]{})
		defer r.Close()
		r.Elected(0, 1, &fakeLog{})
		synctest.Wait()
		start := time.Now()
		var ran []string
		session := func(d time.Duration) Timer[*counter] {
			return Timer[*counter]{Key: "m", At: start.Add(d), Op: note(&ran, "expired", start)}
		}
		r.Post(0, set(session(10*time.Second)), ignore)
		time.Sleep(9 * time.Second)
		// The shard is stuck from 9 s to 20 s; the heartbeat comes at 9.5 s.
		r.Post(0, func(*counter, Token, time.Time) Decision { time.Sleep(11 * time.Second); return Decision{} }, ignore)
		time.Sleep(500 * time.Millisecond)
		r.Post(0, set(session(25*time.Second)), ignore)
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"expired at 25s"}; !slices.Equal(ran, want) {
			t.Fatalf("timers %q, want %q", ran, want)
		}
	})
	bubble(t, "a session whose reply waits for commit runs in full from there", func(t *testing.T) {
		r := newRuntime(Options[*counter]{CommitTimeout: time.Hour})
		defer r.Close()
		log := &fakeLog{delay: -1}
		r.Elected(0, 1, log)
		synctest.Wait()
		start := time.Now()
		var ran []string
		session := func(d time.Duration) Timer[*counter] {
			return Timer[*counter]{Key: "m", At: start.Add(d), Op: note(&ran, "expired", start)}
		}
		r.Post(0, set(session(10*time.Second)), ignore)
		r.Post(0, write("a"), ignore)
		r.Post(0, set(session(10*time.Second)), ignore) // waits behind the write
		time.Sleep(100 * time.Second)
		log.commit()
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"expired at 1m50s"}; !slices.Equal(ran, want) {
			t.Fatalf("timers %q, want %q", ran, want)
		}
	})
}
