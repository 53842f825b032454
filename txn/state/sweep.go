package state

import (
	"time"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire/coordrec"
)

// maxSweepBytes bounds the records that one operation of a sweep writes, so that they fit into a batch.
const maxSweepBytes = 256 << 10

// AbortTimedOut aborts those of ids whose transaction has run out of time, and says how many of ids it has looked at.
// The producers are fenced.
func (s *State) AbortTimedOut(now time.Time, ids []string, cluster Version) (d coord.Decision, looked int) {
	size := 0
	for looked < len(ids) && size < maxSweepBytes {
		t := s.byID[ids[looked]]
		looked++
		if t == nil || !t.timedOut(now) {
			continue
		}
		f := t.fence(cluster, now)
		size += len(f.Records[0].Key) + len(f.Records[0].Value)
		d.Timestamp = now
		d.Records = append(d.Records, f.Records...)
		d.Effects = append(d.Effects, f.Effects...)
	}
	return d, looked
}

// Expire forgets those of ids that were not used for the configured time, and says how many of ids it has looked at. An
// id with an open or an undecided transaction stays.
func (s *State) Expire(now time.Time, ids []string) (d coord.Decision, looked int) {
	size := 0
	for looked < len(ids) && size < maxSweepBytes {
		t := s.byID[ids[looked]]
		looked++
		if t == nil || t.Status != Empty && !t.Status.completed() || t.Updated+s.cfg.Expiration.Milliseconds() > now.UnixMilli() {
			continue
		}
		key := coordrec.AppendTxnKey(nil, t.ID)
		size += len(key)
		d.Timestamp = now
		d.Records = append(d.Records, coord.Record{Key: key})
	}
	return d, looked
}
