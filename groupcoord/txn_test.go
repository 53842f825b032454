package groupcoord

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// loadingLog takes for ever to load; silentLog appends and never commits; refusingLog refuses.
type (
	loadingLog  struct{ memory }
	silentLog   struct{ memory }
	refusingLog struct {
		memory
		err error
	}
)

func (*loadingLog) Load(ctx context.Context, _ coord.Machine) (wire.Offset, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (*silentLog) Append(wire.LeaderEpoch, coord.Batch, func(wire.Offset, error)) (wire.Offset, error) {
	return 0, nil
}

func (l *refusingLog) Append(wire.LeaderEpoch, coord.Batch, func(wire.Offset, error)) (wire.Offset, error) {
	return 0, l.err
}

// The sender of a marker knows the codes of partitions only: a shard that loads or is not here is answered 6, never 14,
// 15 or 16; an unknown outcome is answered 7.
func TestMarkersKnowNoCoordinatorCodes(t *testing.T) {
	for _, tt := range []struct {
		name string
		log  coord.Log // nil: the shard is not led here
		want *kerr.Error
	}{
		{"there", &memory{}, nil},
		{"not here", nil, kerr.NotLeaderForPartition},
		{"loading", &loadingLog{}, kerr.NotLeaderForPartition},
		{"not committed in time", &silentLog{}, kerr.RequestTimedOut},
		{"too few replicas", &refusingLog{err: kerr.NotEnoughReplicas}, kerr.NotEnoughReplicas},
		{"an older coordinator's", &refusingLog{err: kerr.TransactionCoordinatorFenced}, kerr.TransactionCoordinatorFenced},
		{"an older producer's", &refusingLog{err: kerr.InvalidProducerEpoch}, kerr.InvalidProducerEpoch},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := service(t, 0, nil)
				defer s.Close()
				if tt.log != nil {
					s.Elected(0, 1, tt.log)
				}
				synctest.Wait()
				answered := make(chan *kerr.Error, 1)
				s.AppendMarker(0, coord.Marker{ProducerRef: coord.ProducerRef{ID: 7}, Commit: true}, func(err *kerr.Error) { answered <- err })
				select {
				case err := <-answered:
					if err != tt.want {
						t.Errorf("%v, want %v", err, tt.want)
					}
				case <-time.After(time.Minute):
					t.Error("not answered")
				}
			})
		})
	}
}

// A marker that meets a full queue or a shard that has failed is answered 6 as well.
func TestMarkerCodes(t *testing.T) {
	for _, err := range []error{coord.ErrLoading, coord.ErrNotHere, coord.ErrFailed, coord.ErrBusy} {
		if got := markerCode(err); got != kerr.NotLeaderForPartition {
			t.Errorf("%v: %v", err, got)
		}
	}
}
