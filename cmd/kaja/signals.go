package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// watchSignals delivers the signals that a node acts on. One that was being ignored when the process began, as nohup
// and shells do for their background jobs, stays ignored.
func watchSignals() <-chan os.Signal {
	c := make(chan os.Signal, 8)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGQUIT)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	return c
}

// stacks is what every goroutine is doing.
func stacks() []byte {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			return buf[:n]
		}
		buf = make([]byte, 2*len(buf))
	}
}

// interruptible is ctx, cancelled by the first signal to stop. The caller calls done when it needs it no more.
func (a *app) interruptible(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case <-a.signals:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(); <-over }
}
