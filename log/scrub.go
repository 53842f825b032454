package log

import (
	"context"
	"fmt"

	"github.com/kajamq/kaja/wire/batch"
)

// Scrub reads every sealed segment and verifies each batch, as a reader that trusts nothing would: bits that flip on a disk
// are found before somebody needs them. It changes nothing and holds up nobody. throttle is called with the bytes that
// were read and waits as it likes; its error ends the scrub. It returns how many bytes were read.
//
// Errors: *CorruptError, ErrStorage, ErrClosed, ctx's and throttle's. A segment that goes away meanwhile is no error.
func (l *Log) Scrub(ctx context.Context, throttle func(ctx context.Context, bytes int) error) (int64, error) {
	if l.Segments() == 1 {
		return 0, nil
	}
	if err := l.Wake(); err != nil {
		return 0, err
	}
	r := &cleanRound{l: l, o: &CleanOptions{Throttle: throttle}, view: l.view.Load(), ctx: ctx, buf: fullScanBytes}
	var sum int64
	for i, s := range r.view.segments[:len(r.view.segments)-1] {
		n, err := r.walk(s, 0, func(*header, batch.Batch) error { return nil })
		sum += n
		if err != nil && ctx.Err() == nil && !r.current(r.view.segments[i:i+1]) {
			continue
		}
		if err != nil {
			return sum, fmt.Errorf("scrub %s: %w", l.Dir(), err)
		}
	}
	return sum, nil
}

// SealedSize is the number of bytes that Scrub reads.
func (l *Log) SealedSize() int64 {
	if r := l.resting.Load(); r != nil {
		return r.size() - r.active().Size
	}
	v := l.view.Load()
	var sum int64
	for _, s := range v.segments[:len(v.segments)-1] {
		sum += s.size.Load()
	}
	return sum
}
