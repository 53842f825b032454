// Package poll waits for conditions with a bound. Tests use it where the moment of an event is not theirs to choose.
package poll

import (
	"context"
	"fmt"
	"time"
)

// Interval is the pause between two looks at a condition.
const Interval = 20 * time.Millisecond

// Until calls ready until it reports true, at most for the given time. The error names what was waited for and holds the
// last error that ready returned; an error of ready does not end the waiting.
func Until(ctx context.Context, atMost time.Duration, what string, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	var last error
	for {
		ok, err := ready()
		if ok {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			if last != nil {
				return fmt.Errorf("%s: not within %v: %w", what, atMost, last)
			}
			return fmt.Errorf("%s: not within %v", what, atMost)
		case <-ticker.C:
		}
	}
}
