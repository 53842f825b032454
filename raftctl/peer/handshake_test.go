package peer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kajamq/kaja/wire"
)

const secret = "correct horse battery staple"

func identity(t testing.TB, cluster string, node int32, secret string) *Identity {
	t.Helper()
	i, err := NewIdentity(ID{ClusterID: cluster, NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{15: byte(node)}}, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func anybody(ID) error { return nil }

func admitAll(Kind, ID) error { return nil }

// shake runs a handshake over a pipe; either side closes it after an error.
func shake(d, a *Identity, kind Kind, expect func(ID) error, admit func(Kind, ID) error) (seen, met ID, got Kind, dErr, aErr error) {
	c, s := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got, met, aErr = a.Accept(s, admit); aErr != nil {
			_ = s.Close()
		}
	}()
	if seen, dErr = d.Dial(c, kind, expect); dErr != nil {
		_ = c.Close()
	}
	<-done
	return seen, met, got, dErr, aErr
}

func TestBothSidesLearnWhoTheOtherIs(t *testing.T) {
	d, a := identity(t, "c", 1, secret), identity(t, "c", 2, secret)
	for _, kind := range []Kind{Raft, Kafka, Call} {
		seen, met, got, dErr, aErr := shake(d, a, kind, anybody, admitAll)
		if dErr != nil || aErr != nil || seen != a.self || met != d.self || got != kind {
			t.Errorf("kind %d: dialer met %v (%v), acceptor met %v for %d (%v)", kind, seen, dErr, met, got, aErr)
		}
	}
}

func TestRefused(t *testing.T) {
	no := errors.New("not this one")
	for _, tt := range []struct {
		name   string
		d, a   *Identity
		kind   Kind
		expect func(ID) error
		admit  func(Kind, ID) error
	}{
		{"other secret", identity(t, "c", 1, secret), identity(t, "c", 2, secret+"."), Kafka, anybody, admitAll},
		{"other cluster", identity(t, "c", 1, secret), identity(t, "x", 2, secret), Call, anybody, admitAll},
		{"raft without a cluster", identity(t, "", 1, secret), identity(t, "", 2, secret), Raft, anybody, admitAll},
		{"unexpected node", identity(t, "c", 1, secret), identity(t, "c", 2, secret), Raft, func(ID) error { return no }, admitAll},
		{"not admitted", identity(t, "c", 1, secret), identity(t, "c", 2, secret), Raft, anybody, func(Kind, ID) error { return no }},
		{"kind of a later release", identity(t, "c", 1, secret), identity(t, "c", 2, secret), 9, anybody, admitAll},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, _, dErr, aErr := shake(tt.d, tt.a, tt.kind, tt.expect, tt.admit)
			if dErr == nil || aErr == nil {
				t.Fatalf("dialer %v, acceptor %v: want both to fail", dErr, aErr)
			}
		})
	}
	if _, _, _, dErr, aErr := shake(identity(t, "c", 1, secret), identity(t, "", 2, secret), Call, anybody, admitAll); dErr != nil || aErr != nil {
		t.Errorf("a call to a node without a cluster: %v, %v", dErr, aErr)
	}
}

// A stranger gets the acceptor's hello, whatever he sends, and nothing else: no proof, and no word to what lies behind.
func TestStrangersGetNothing(t *testing.T) {
	head := append(magic[:], version, byte(Raft), 0, 0)
	hello := identity(t, "c", 1, "another secret of enough bytes").hello()
	for _, tt := range []struct {
		name string
		send []byte
	}{
		{"silence", nil},
		{"half a preamble", head[:5]},
		{"a huge message", append(bytes.Clone(head), 0xff, 0xff)},
		{"an empty hello", appendMessage(bytes.Clone(head), nil)},
		{"no proof", appendMessage(bytes.Clone(head), hello)},
		{"an empty proof", appendMessage(appendMessage(bytes.Clone(head), hello), nil)},
		{"a zero proof", appendMessage(appendMessage(bytes.Clone(head), hello), make([]byte, 32))},
		{"a huge proof", append(appendMessage(bytes.Clone(head), hello), 0xff, 0xff)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := identity(t, "c", 2, secret)
				c, s := net.Pipe()
				admitted := false
				start := time.Now()
				done := make(chan error, 1)
				go func() {
					_, _, err := a.Accept(s, func(Kind, ID) error { admitted = true; return nil })
					_ = s.Close()
					done <- err
				}()
				got := make(chan int)
				go func() {
					b, _ := io.ReadAll(c)
					got <- len(b)
				}()
				_, _ = c.Write(tt.send)
				if err := <-done; err == nil || admitted {
					t.Errorf("accepted: %v, admitted %v", err, admitted)
				}
				if n := <-got; n > 2+helloHead+1 {
					t.Errorf("the stranger got %d bytes", n)
				}
				if d := time.Since(start); d > HandshakeTimeout {
					t.Errorf("it took %v", d)
				}
				_ = c.Close()
			})
		})
	}
}

// What was recorded of one handshake opens no second one: the acceptor's nonce is new.
func TestReplayIsRefused(t *testing.T) {
	d, a := identity(t, "c", 1, secret), identity(t, "c", 2, secret)
	c, s := net.Pipe()
	rec := &recorder{Conn: c}
	go func() { _, _, _ = a.Accept(s, admitAll) }()
	if _, err := d.Dial(rec, Raft, anybody); err != nil {
		t.Fatal(err)
	}
	c, s = net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, c) }()
	go func() { _, _ = c.Write(rec.sent) }()
	if _, _, err := a.Accept(s, admitAll); !errors.Is(err, ErrHandshake) {
		t.Errorf("a replayed handshake: %v", err)
	}
	_ = c.Close()
}

type recorder struct {
	net.Conn
	sent []byte
}

// Write implements net.Conn.
func (r *recorder) Write(b []byte) (int, error) {
	r.sent = append(r.sent, b...)
	return r.Conn.Write(b)
}

// A proof for one role or kind is worth nothing for another.
func TestProofsAreBound(t *testing.T) {
	i := identity(t, "c", 1, secret)
	seen := map[string]string{}
	for _, role := range []string{"dialer", "acceptor"} {
		for kind := Raft; kind <= Call; kind++ {
			p := hex.EncodeToString(proof(i.secret, role, append(bytes.Clone(magic[:]), version, byte(kind), 0, 0)))
			if other, ok := seen[p]; ok {
				t.Errorf("%s %d has the proof of %s", role, kind, other)
			}
			seen[p] = fmt.Sprint(role, kind)
		}
	}
}

func TestShortSecretIsRefused(t *testing.T) {
	if _, err := NewIdentity(ID{ClusterID: "c"}, make([]byte, MinSecret-1)); err == nil {
		t.Error("accepted")
	}
}

func TestIDText(t *testing.T) {
	want := ID{NodeID: 7, DirectoryID: wire.UUID{1, 2, 3}}
	if got, err := ParseID(want.String()); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "7", "7@", "x@AAAAAAAAAAAAAAAAAAAAAA", "7@short", " 7@AAAAAAAAAAAAAAAAAAAAAA",
		"7x@AAAAAAAAAAAAAAAAAAAAAA", "2147483648@AAAAAAAAAAAAAAAAAAAAAA", "7@AAAAAAAAAAAAAAAAAAAAAA "} {
		if _, err := ParseID(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

func FuzzAccept(f *testing.F) {
	a := identity(f, "c", 2, secret)
	f.Add(append(magic[:], version, byte(Raft), 0, 0))
	f.Add(appendMessage(append(bytes.Clone(magic[:]), version, byte(Raft), 0, 0), identity(f, "c", 1, secret).hello()))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, s := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, c) }()
		go func() {
			_, _ = c.Write(data)
			_ = c.Close()
		}()
		_, _, err := a.Accept(s, admitAll)
		_ = s.Close()
		if err == nil {
			t.Fatal("somebody without the secret was accepted")
		}
	})
}
