package replica

import (
	"errors"
	"testing"

	"github.com/kajamq/kaja/log"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Coordinators tell errors of the disk from others by the protocol error that stands for them.
func TestRefusalOfCoordinatorAppends(t *testing.T) {
	for _, tc := range []struct{ err, want error }{
		{nil, nil},
		{&log.StorageError{Op: "write", Err: errors.New("no space")}, kerr.KafkaStorageError},
		{log.ErrClosed, kerr.KafkaStorageError},
		{ErrOffline, kerr.KafkaStorageError},
		{kerr.NotEnoughReplicas, kerr.NotEnoughReplicas},
		{&log.ValidationError{Code: kerr.MessageTooLarge}, kerr.MessageTooLarge},
	} {
		got := refusal(tc.err)
		if code, _ := errors.AsType[*kerr.Error](got); tc.want == nil && got != nil || tc.want != nil && !errors.Is(code, tc.want) || !errors.Is(got, tc.err) {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
