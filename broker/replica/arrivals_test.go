package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/broker/purgatory"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
)

// parked begins a follower's fetch of so many partitions that would wait for a minute; the channel is closed when it is answered.
func parked(m *Manager, id wire.BrokerID, partitions int) <-chan struct{} {
	turn := m.FollowerTurn(id)
	wait := turn.Wait(time.Minute, partitions)
	done := make(chan struct{})
	f := purgatory.NewFetch(1, 1, func() { close(done) })
	turn.Watch(f)
	f.Start(wait)
	return done
}

// took is how long until done is closed.
func took(done <-chan struct{}) time.Duration {
	began := time.Now()
	<-done
	return time.Since(began)
}

// A follower that has something new to fetch is answered at once, and for a second waits only briefly. If there is more again and again,
// the time between two answers grows with its session, and what is new is never waited for longer than that brief while.
func TestFollowerHearsOfNewcomers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, memfs.New(time.Now))
		k.open()
		defer k.close()
		a := k.m.arrivals
		const large = 5000
		each, brief := large*arrivalWaitEach, arrivalWait+large*arrivalWaitEach

		first := parked(k.m, 2, large)
		other := parked(k.m, 3, large)
		time.Sleep(10 * time.Second)
		a.expect(2)
		if d := took(first); d != 0 {
			t.Errorf("the fetch was answered after %v", d)
		}
		for range 3 { // while there is more all the time
			fetch := parked(k.m, 2, large)
			began := time.Now()
			for time.Since(began) < each {
				select {
				case <-fetch:
					t.Fatalf("a large session is walked again after %v", time.Since(began))
				default:
				}
				a.expect(2)
				time.Sleep(each / 10)
			}
			a.expect(2)
			if d := took(fetch); d != 0 {
				t.Errorf("%v after the last answer the fetch waits for another %v", time.Since(began), d)
			}
		}
		fetch := parked(k.m, 2, large) // and no more
		a.expect(2)
		if d := took(fetch); d != brief {
			t.Errorf("the fetch that has missed a newcomer was answered after %v, want %v", d, brief)
		}
		time.Sleep(arrivalWindow)
		turn := k.m.FollowerTurn(2)
		if d := turn.Wait(time.Minute, large); d != time.Minute {
			t.Errorf("after a second without newcomers a fetch waits for %v", d)
		}
		a.expect(2) // between the look and the wait
		f, done := (*purgatory.Fetch)(nil), make(chan struct{})
		f = purgatory.NewFetch(1, 1, func() { close(done) })
		turn.Watch(f)
		f.Start(time.Minute)
		if d := took(done); d != 0 {
			t.Errorf("a newcomer that was told while the fetch was read was noticed after %v", d)
		}
		for range 3 { // a small one is answered each time
			small := parked(k.m, 2, 0)
			a.expect(2)
			if d := took(small); d != 0 {
				t.Errorf("a small session waits for %v", d)
			}
		}
		select {
		case <-other:
			t.Error("a follower without newcomers was answered")
		default:
		}
	})
}

// However many partitions one change of the metadata brings, a follower's fetch is answered once, and after the last of them.
func TestFollowerHearsOfAChangeOnce(t *testing.T) {
	k := newKit(t, memfs.New(nil))
	k.open()
	defer k.close()
	done := parked(k.m, 2, 0)
	before := k.m.FollowerTurn(2).mark.Generation
	k.topic("t", topicID("t"), 100, 1, 2)
	<-done
	if n := k.m.FollowerTurn(2).mark.Generation - before; n != 1 {
		t.Errorf("its fetches were woken %d times", n)
	}
	k.topic("alone", topicID("alone"), 10, 1)
	if n := k.m.FollowerTurn(2).mark.Generation - before; n != 1 {
		t.Errorf("its fetches were woken for what others have to fetch: %d times", n)
	}
	if n := k.m.FollowerTurn(1).mark.Generation; n != 0 {
		t.Errorf("this broker has woken itself %d times", n)
	}
}
