package raftctl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A heartbeat counts from when it came: one that is being answered when its connection breaks, or is answered later, says nothing of
// a broker that has died since.
func TestHeartbeatBeingAnsweredIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b beats
		of := life{id: 1, epoch: 7}
		check := func(when string, since time.Time, want bool) {
			t.Helper()
			if got := b.cameAfter(of, since); got != want {
				t.Errorf("%s: alive %v, want %v", when, got, want)
			}
		}
		check("nothing has come", time.Now(), false)
		b.begin(of)
		<-time.After(time.Millisecond)
		broke := time.Now()
		<-time.After(time.Millisecond)
		check("it waits for its answer", broke, false)
		b.end(of)
		check("it was answered", broke, false)
		b.begin(life{id: 1, epoch: 8})
		check("another incarnation's came", broke, false)
		b.begin(of)
		check("another came", broke, true)
	})
}

// A machine refuses only once nobody listens there: a process that ends may accept connections, or reset them, until then.
func TestRefused(t *testing.T) {
	reset := fmt.Errorf("dial: %w", os.NewSyscallError("connect", syscall.ECONNRESET))
	refusal := fmt.Errorf("dial: %w", os.NewSyscallError("connect", syscall.ECONNREFUSED))
	for _, tc := range []struct {
		name  string
		looks []error // the last one is met for good; nil: the connection is made
		want  bool
	}{
		{"at once", []error{refusal}, true},
		{"after it accepted", []error{nil, refusal}, true},
		{"after it reset", []error{reset, refusal}, true},
		{"after both", []error{nil, reset, nil, refusal}, true},
		{"it listens", []error{nil}, false},
		{"it resets", []error{reset}, false},
		{"another failure", []error{errors.New("no route")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				got := refused(t.Context(), func(context.Context) error {
					err := tc.looks[min(looks, len(tc.looks)-1)]
					looks++
					return err
				})
				if got != tc.want {
					t.Errorf("refused %v after %d looks, want %v", got, looks, tc.want)
				}
			})
		})
	}
	silent, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if refused(silent, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) {
		t.Error("a machine of which nothing is heard counts as refusing")
	}
}
