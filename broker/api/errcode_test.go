package api

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/twmb/franz-go/pkg/kerr"
)

func TestErrorCode(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want int16
		read int16
	}{
		{"none", nil, 0, 0},
		{"protocol", kerr.InvalidRecord, 87, 87},
		{"wrapped protocol", fmt.Errorf("x: %w", kerr.NotLeaderForPartition), 6, 6},
		{"validation", &log.ValidationError{Code: kerr.InvalidTimestamp}, 32, 32},
		{"disk", &log.StorageError{Err: syscall.EIO}, 56, 56},
		{"disk full", &log.StorageError{Err: syscall.ENOSPC}, 56, 56},
		{"disk under a protocol error", &log.StorageError{Err: kerr.InvalidRecord}, 56, 56},
		{"offline", fmt.Errorf("x: %w", replica.ErrOffline), 56, 56},
		{"closed", log.ErrClosed, 56, 56},
		{"out of range", &log.OffsetOutOfRangeError{}, 1, 1},
		{"corrupt", &log.CorruptError{}, -1, 2},
		{"cancelled", context.Canceled, 7, 7},
		{"unknown", errors.New("x"), -1, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := errorCode(tt.err); got != tt.want {
				t.Errorf("errorCode %d, want %d", got, tt.want)
			}
			if got := readErrorCode(tt.err); got != tt.read {
				t.Errorf("readErrorCode %d, want %d", got, tt.read)
			}
		})
	}
}
