package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pair is a connection between hosts a and b.
func pair(t *testing.T, n *Network) (c, s net.Conn) {
	t.Helper()
	a, b := n.Host("a").Boot(), n.Host("b").Boot()
	l, err := b.Listen("tcp", ":9092")
	if err != nil {
		t.Fatal(err)
	}
	c, err = a.Dial(t.Context(), "tcp", "b:9092")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// bubble runs f with a network in a bubble.
func bubble(t *testing.T, f func(t *testing.T, n *Network)) {
	synctest.Test(t, func(t *testing.T) {
		n := NewNetwork(1, DefaultLatency)
		defer n.Close()
		f(t, n)
	})
}

func readError(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

func TestBytesArriveInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		want := make([]byte, 3*window+17)
		for i := range want {
			want[i] = byte(i * 7)
		}
		go func() {
			if _, err := c.Write(want); err != nil {
				t.Error(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		got, err := io.ReadAll(s)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("got %d bytes, %v; want %d equal ones", len(got), err, len(want))
		}
	})
}

func TestLatencyIsWithinItsBounds(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		for range 100 {
			start := time.Now()
			if _, err := c.Write([]byte{1}); err != nil {
				t.Fatal(err)
			}
			if err := readError(s); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(start); d < DefaultLatency.Min || d > DefaultLatency.Max {
				t.Fatalf("a byte took %v", d)
			}
		}
		n.Slow("a", "b", time.Second)
		start := time.Now()
		_, _ = c.Write([]byte{1})
		_ = readError(s)
		if d := time.Since(start); d < time.Second || d > time.Second+DefaultLatency.Max {
			t.Fatalf("a byte on a slow link took %v", d)
		}
	})
}

func TestCutIsOneWayAndHeals(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		n.Cut("a", "b")
		_, _ = c.Write([]byte("xy"))
		_, _ = s.Write([]byte("z"))
		if err := readError(c); err != nil {
			t.Fatalf("the open direction: %v", err)
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Hour))
		if err := readError(s); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the cut direction: %v", err)
		}
		_ = s.SetReadDeadline(time.Time{})
		n.Heal("a", "b")
		got := make([]byte, 2)
		if _, err := io.ReadFull(s, got); err != nil || string(got) != "xy" {
			t.Fatalf("after healing: %q, %v", got, err)
		}
	})
}

func TestEndsOfAHost(t *testing.T) {
	t.Run("kill resets and refuses", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			c, _ := pair(t, n)
			n.Host("b").Kill()
			if err := readError(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v", err)
			}
			_, err := n.Host("a").Boot().Dial(t.Context(), "tcp", "b:9092")
			if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial: %v", err)
			}
		})
	})
	t.Run("power loss is silent until the host is back", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			c, _ := pair(t, n)
			n.Host("b").PowerOff()
			_, _ = c.Write([]byte{1})
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if err := readError(c); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("read: %v", err)
			}
			n.Host("b").Boot()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			_, _ = c.Write([]byte{2})
			if err := readError(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read after the boot: %v", err)
			}
		})
	})
	t.Run("dialing a host without power ends with the context", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			n.Host("b").PowerOff()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			_, err := n.Host("a").Boot().Dial(ctx, "tcp", "b:9092")
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
				t.Errorf("dial: %v after %v", err, time.Since(start))
			}
		})
	})
	t.Run("dialing a host without power reaches it once it is back", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			n.Host("b").PowerOff()
			start := time.Now()
			go func() {
				time.Sleep(4 * time.Second)
				if _, err := n.Host("b").Boot().Listen("tcp", ":9092"); err != nil {
					t.Error(err)
				}
			}()
			_, err := n.Host("a").Boot().Dial(t.Context(), "tcp", "b:9092")
			if took := time.Since(start); err != nil || took < 7*time.Second || took >= 8*time.Second {
				t.Errorf("dial: %v after %v; want to be there with the SYN that is sent after 1, 2 and 4 seconds", err, took)
			}
		})
	})
	t.Run("a dead process can do nothing", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *Network) {
			p := n.Host("a").Boot()
			n.Host("a").Kill()
			if _, err := p.Listen("tcp", ":1"); !errors.Is(err, net.ErrClosed) {
				t.Errorf("listen: %v", err)
			}
			if _, err := p.Dial(t.Context(), "tcp", "a:1"); !errors.Is(err, net.ErrClosed) {
				t.Errorf("dial: %v", err)
			}
		})
	})
}

func TestResetBreaksBothEnds(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		n.Reset("a", "b")
		for _, end := range []net.Conn{c, s} {
			if err := readError(end); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v: %v", end.LocalAddr(), err)
			}
		}
	})
}

func TestFullWindowBlocksUntilRead(t *testing.T) {
	bubble(t, func(t *testing.T, n *Network) {
		c, s := pair(t, n)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		sent, err := c.Write(make([]byte, window+1))
		if sent != window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d, %v", sent, err)
		}
		_ = c.SetWriteDeadline(time.Time{})
		go func() { _, _ = io.CopyN(io.Discard, s, window) }()
		if _, err := c.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	})
}
