//go:build linux

package netns

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Shuffle is how packets are put out of order and repeated: so many of a thousand are held for a random time of at most Hold, and so
// many go out twice, the copy likewise after a random time.
type Shuffle struct {
	Late, Twice int
	Hold        time.Duration
}

// fate gives for each copy of a packet how long it is held.
func (s Shuffle) fate(rng *rand.Rand) []time.Duration {
	held := func() time.Duration { return time.Duration(rng.Int64N(int64(s.Hold) + 1)) }
	copies := make([]time.Duration, 1, 2)
	if rng.IntN(1000) < s.Late {
		copies[0] = held()
	}
	if rng.IntN(1000) < s.Twice {
		copies = append(copies, held())
	}
	return copies
}

// Shuffled is what a relay has done, in packets.
type Shuffled struct{ Passed, Late, Twice int64 }

// relay is a program between a host's cable and the bridge: what comes out of one end goes into the other, shuffled. The
// ends are taps, so what it sees are packets as they are on a wire, and the kernels' TCP has to put them right.
type relay struct {
	ends                [2]*os.File
	stop                chan struct{}
	workers             sync.WaitGroup
	passed, late, twice atomic.Int64
}

// tap makes a device whose packets are read from the file and written to it; it is gone when the file is closed.
func tap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the tap %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

func newRelay(inner, outer string, s Shuffle, seed uint64) (*relay, error) {
	r := &relay{stop: make(chan struct{})}
	for i, name := range []string{inner, outer} {
		end, err := tap(name)
		if err != nil {
			return nil, errors.Join(err, r.close())
		}
		r.ends[i] = end
	}
	for i := range r.ends {
		from, to, rng := r.ends[i], r.ends[1-i], rand.New(rand.NewPCG(seed, uint64(i)))
		r.workers.Go(func() { r.pump(from, to, s, rng) })
	}
	return r, nil
}

// pump passes packets on until an end is closed. A tap that is not up takes nothing: its packets are lost, as on a wire.
func (r *relay) pump(from io.Reader, to io.Writer, s Shuffle, rng *rand.Rand) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		r.passed.Add(1)
		for i, hold := range s.fate(rng) {
			if i > 0 {
				r.twice.Add(1)
			}
			if hold == 0 {
				_, _ = to.Write(buf[:n])
				continue
			}
			r.late.Add(1)
			r.holdBack(append([]byte(nil), buf[:n]...), to, hold)
		}
	}
}

func (r *relay) holdBack(packet []byte, to io.Writer, hold time.Duration) {
	r.workers.Go(func() {
		t := time.NewTimer(hold)
		defer t.Stop()
		select {
		case <-t.C:
			_, _ = to.Write(packet)
		case <-r.stop:
		}
	})
}

// close takes the taps away and waits until nothing is held any more.
func (r *relay) close() error {
	close(r.stop)
	var errs []error
	for _, end := range r.ends {
		if end != nil {
			errs = append(errs, end.Close())
		}
	}
	r.workers.Wait()
	return errors.Join(errs...)
}

// Reorder puts a relay into a host's cable, until Heal.
func (n *Net) Reorder(i int, s Shuffle, seed uint64) error {
	inner, outer, box := fmt.Sprintf("i%d", i), fmt.Sprintf("o%d", i), fmt.Sprintf("box%d", i)
	r, err := newRelay(inner, outer, s, seed)
	if err != nil {
		return err
	}
	n.hosts[i].relay = r
	for _, step := range [][]string{
		{"ip", "link", "add", box, "type", "bridge"},
		{"ip", "link", "set", box, "up"},
		{"ip", "link", "set", inner, "master", box, "up"},
		{"ip", "link", "set", outer, "master", bridge, "up"},
		{"ip", "link", "set", cable(i), "master", box},
	} {
		if err := run(exec.Command(step[0], step[1:]...)); err != nil {
			return err
		}
	}
	return nil
}

// Shuffled says what the relay in a host's cable has done so far.
func (n *Net) Shuffled(i int) Shuffled {
	r := n.hosts[i].relay
	if r == nil {
		return Shuffled{}
	}
	return Shuffled{Passed: r.passed.Load(), Late: r.late.Load(), Twice: r.twice.Load()}
}

// unreorder takes the relay out again.
func (n *Net) unreorder(i int) error {
	r := n.hosts[i].relay
	n.hosts[i].relay = nil
	return errors.Join(
		run(exec.Command("ip", "link", "set", cable(i), "master", bridge)),
		r.close(),
		run(exec.Command("ip", "link", "del", fmt.Sprintf("box%d", i))))
}
