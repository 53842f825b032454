package replica

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// jumpTolerance is how far the wall clock may drift from the monotonic one between two looks before it has jumped:
	// what a time daemon corrects in small steps stays below.
	jumpTolerance = time.Minute
	// DefaultJumpHold is for how long a jump must stand before it is believed.
	DefaultJumpHold = 24 * time.Hour
)

// clock is the wall clock for what deletes by age: retention, producer expiry, compaction. A wall clock that jumps is
// not believed at once, in either direction, because what it would delete does not come back: time goes on from before
// the jump with the monotonic clock until the jump has stood for the hold time. So nothing goes early by a jump alone
// that is put right within that time, and nothing is kept for longer than that time because of it. Safe for concurrent
// use.
type clock struct {
	wall, mono func() time.Time
	hold       time.Duration
	logger     *slog.Logger

	mu      sync.Mutex
	trusted time.Time // as of at
	at      time.Time // monotonic; zero until the first look
	jump    time.Duration
	since   time.Time // of the jump; zero: there is none
}

// now is the trusted time. It has to be called more often than every few hours for a slow drift not to look like a jump.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := c.wall().Round(0), c.mono()
	if c.at.IsZero() {
		c.trusted, c.at = wall, mono
		return wall
	}
	expected := c.trusted.Add(mono.Sub(c.at))
	off := wall.Sub(expected)
	switch {
	case off.Abs() <= jumpTolerance:
		if !c.since.IsZero() {
			c.logger.Info("wall clock is back", "was_off", c.jump)
		}
		expected, c.since = wall, time.Time{}
	case c.since.IsZero() || (off-c.jump).Abs() > jumpTolerance:
		c.jump, c.since = off, mono
		c.logger.Error("wall clock jumped: deletion by age goes on by the time before the jump until it has stood for the hold time",
			"jump", off, "hold", c.hold)
	case mono.Sub(c.since) >= c.hold:
		c.logger.Warn("wall clock's jump has stood for the hold time and is believed", "jump", off, "hold", c.hold)
		expected, c.since = wall, time.Time{}
	}
	c.trusted, c.at = expected, mono
	return expected
}
