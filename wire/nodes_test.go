package wire

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPrincipalRoundTrip(t *testing.T) {
	b := AppendPrincipal(nil, "User", "CN=a,O=b")
	kind, name, err := ParsePrincipal(b)
	if err != nil || kind != "User" || name != "CN=a,O=b" {
		t.Fatalf("%q %q %v", kind, name, err)
	}
	for n := range len(b) - 2 {
		if _, _, err := ParsePrincipal(b[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes: %v, want ErrMalformed", n, err)
		}
	}
}

func TestNodeTags(t *testing.T) {
	hb := kmsg.NewPtrBrokerHeartbeatRequest()
	hb.Version = 2
	ids := []UUID{{1}, {2}}
	hb.UnknownTags.Set(TagGoneTopics, AppendUUIDs(nil, ids))
	got := kmsg.NewPtrBrokerHeartbeatRequest()
	got.Version = 2
	if err := got.ReadFrom(hb.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	v, ok := Tag(&got.UnknownTags, TagGoneTopics)
	if !ok || !slices.Equal(ParseUUIDs(v), ids) {
		t.Fatalf("%x %v", v, ok)
	}
	if ParseUUIDs(v[:20]) != nil {
		t.Error("20 bytes were read as ids")
	}
	r := kmsg.NewPtrEnvelopeResponse()
	if _, ok := OffsetTag(&r.UnknownTags); ok {
		t.Error("an offset was found where none is")
	}
	SetOffsetTag(&r.UnknownTags, 77)
	back := kmsg.NewPtrEnvelopeResponse()
	if err := back.ReadFrom(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	if o, ok := OffsetTag(&back.UnknownTags); !ok || o != 77 {
		t.Errorf("offset %d %v, want 77", o, ok)
	}
	beat := kmsg.NewPtrBrokerHeartbeatResponse()
	if d := SinceTag(&beat.UnknownTags); d != 0 {
		t.Errorf("%v was found where nothing is", d)
	}
	for d, want := range map[time.Duration]time.Duration{0: 0, 123 * time.Millisecond: 123 * time.Millisecond, 1 << 62: 1 << 62, -5: 0} {
		SetOffsetTag(&beat.UnknownTags, 78)
		SetSinceTag(&beat.UnknownTags, d)
		read := kmsg.NewPtrBrokerHeartbeatResponse()
		if err := read.ReadFrom(beat.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		o, _ := OffsetTag(&read.UnknownTags)
		if got := SinceTag(&read.UnknownTags); got != want || o != 78 {
			t.Errorf("since %v is %v and offset %d, want %v and 78", d, got, o, want)
		}
	}
}

func TestCutResponseHeader(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		size         int
	}{{19, 4, 4}, {19, 5, 5}, {18, 3, 4}} {
		b := append(AppendResponseHeader(nil, c.key, c.version, 9), 1, 2, 3)
		body, err := CutResponseHeader(b, c.key, c.version)
		if err != nil || !slices.Equal(body, []byte{1, 2, 3}) || len(b)-len(body) != c.size {
			t.Errorf("key %d version %d: %x %v", c.key, c.version, body, err)
		}
	}
	if _, err := CutResponseHeader([]byte{0, 0}, 19, 5); !errors.Is(err, ErrMalformed) {
		t.Errorf("a short header: %v", err)
	}
}
