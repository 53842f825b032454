package offsets

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kajamq/kaja/coord"
	"github.com/kajamq/kaja/wire"
)

// oneGroup is what the test says of every group.
type oneGroup struct {
	expires    bool
	since      time.Time
	subscribed bool
	removable  bool
}

func (oneGroup) ValidateCommit(string, string, *string, int32, int16) *kerr.Error { return nil }
func (oneGroup) ValidateTxnCommit(string, string, *string, int32, int16) *kerr.Error {
	return nil
}
func (oneGroup) Touch(string, string, time.Time) (coord.Effect, bool) { return nil, false }
func (oneGroup) ValidateOffsetDelete(string) *kerr.Error              { return nil }
func (g oneGroup) Subscribed(string, string) bool                     { return g.subscribed }
func (g oneGroup) Retention(string) (time.Time, bool)                 { return g.since, g.expires }
func (g oneGroup) Removable(string) bool                              { return g.removable }
func (oneGroup) Tombstone(group string) coord.Record                  { return coord.Record{Key: []byte(group)} }

func TestExpire(t *testing.T) {
	now := time.UnixMilli(10_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	const retention = time.Hour
	for _, tc := range []struct {
		name  string
		group oneGroup
		entry Entry
		want  int // records: the offset's and the group's
	}{
		{"just not old enough", oneGroup{expires: true}, Entry{Commit: ago(retention - time.Millisecond), Expire: -1}, 0},
		{"old enough", oneGroup{expires: true}, Entry{Commit: ago(retention), Expire: -1}, 1},
		{"old enough, and the group with it", oneGroup{expires: true, removable: true}, Entry{Commit: ago(retention), Expire: -1}, 2},
		{"the group became empty later", oneGroup{expires: true, since: now.Add(-time.Minute)}, Entry{Commit: ago(retention), Expire: -1}, 0},
		{"the group is empty for long", oneGroup{expires: true, since: now.Add(-retention)}, Entry{Commit: ago(time.Minute), Expire: -1}, 1},
		{"the group is rebalancing", oneGroup{}, Entry{Commit: 0, Expire: -1}, 0},
		{"consumed still", oneGroup{expires: true, subscribed: true}, Entry{Commit: 0, Expire: -1}, 0},
		{"own retention is over", oneGroup{expires: true}, Entry{Commit: ago(time.Second), Expire: now.UnixMilli()}, 1},
		{"own retention is not over", oneGroup{expires: true}, Entry{Commit: 0, Expire: now.UnixMilli() + 1}, 0},
		{"own retention is over, consumed still", oneGroup{expires: true, subscribed: true}, Entry{Expire: 1}, 0},
		{"committed in the future of a clock that went back", oneGroup{expires: true}, Entry{Commit: ago(-time.Hour), Expire: -1}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := New(Config{Retention: retention}, tc.group)
			s.offsets.put(Key{"g", "t", 0}, tc.entry)
			d, done := s.Expire(now, []string{"g"}, 10)
			if len(d.Records) != tc.want || done != 1 {
				t.Fatalf("%d records, %d groups done; want %d records", len(d.Records), done, tc.want)
			}
		})
	}
}

func TestExpireIsBounded(t *testing.T) {
	s := New(Config{}, oneGroup{expires: true, removable: true})
	for p := range wire.PartitionID(5) {
		s.offsets.put(Key{"a", "t", p}, Entry{Expire: -1})
		s.offsets.put(Key{"b", "t", p}, Entry{Expire: -1})
	}
	for _, want := range []struct{ records, done int }{{4, 0}, {4, 1}, {4, 1}} {
		d, done := s.Expire(time.UnixMilli(1), []string{"a", "b"}, 4)
		for _, r := range d.Records {
			if len(r.Key) > 1 { // not the group's
				p := wire.PartitionID(r.Key[len(r.Key)-1])
				group := string(r.Key[4:5])
				s.offsets.remove(Key{group, "t", p})
			}
		}
		if len(d.Records) != want.records && want.done == 0 || done < want.done {
			t.Fatalf("%d records, %d groups done; want %+v", len(d.Records), done, want)
		}
	}
	if n := s.Len(); n != 0 {
		t.Fatalf("%d offsets left", n)
	}
}

func TestMetadataIsCountedAsKafkaDoes(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
	}{{"", 0}, {"abc", 3}, {"\u00e9\u00e9", 2}, {"\U0001F426", 2}} {
		if got := utf16Len(tc.text); got != tc.want {
			t.Errorf("utf16Len(%q) = %d, want %d", tc.text, got, tc.want)
		}
	}
}
