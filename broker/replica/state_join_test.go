package replica

import (
	"testing"
	"time"

	"github.com/kajamq/kaja/wire"
)

// A follower that has kept up and is about to join the ISR holds the high watermark back, so that it misses nothing. One
// that is fenced or stopping does not: it can not join, and what is written after it has gone would wait for the whole of
// replica.lag.time.max.ms (R7; a controlled shutdown of a leader took 15 seconds of acknowledgements).
func TestStoppingFollowerHoldsNothingBack(t *testing.T) {
	for _, inService := range []bool{true, false} {
		now := time.Unix(1000, 0)
		s := NewState(1, FSyncNever, 30*time.Second, 2, 0, 10, 10, 10)
		s.JudgeBy(func(id wire.BrokerID, epoch wire.BrokerEpoch) bool { return inService && id == 3 && epoch == 7 })
		s.Apply(Assignment{Leader: 1, LeaderEpoch: 4, PartitionEpoch: 9, Replicas: []wire.BrokerID{1, 2, 3}, ISR: []wire.BrokerID{1, 2}}, now)
		fetch := func(id wire.BrokerID, epoch wire.BrokerEpoch, o wire.Offset) {
			t.Helper()
			if _, err := s.OnFollowerFetch(FollowerFetch{Replica: id, BrokerEpoch: epoch, LeaderEpoch: 4, Offset: o}, now); err != nil {
				t.Fatal(err)
			}
		}
		fetch(3, 7, 10)
		s.OnAppend(15, wire.NoOffset, now)
		now = now.Add(time.Second)
		fetch(2, 5, 15)
		want := wire.Offset(15)
		if inService {
			want = 10
		}
		if s.HW() != want {
			t.Errorf("in service %v: the high watermark is %d, want %d", inService, s.HW(), want)
		}
	}
}
