package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseHeader(t *testing.T) {
	t.Parallel()
	str := func(s string) *string { return &s }
	for _, tc := range []struct {
		name  string
		frame string
		want  Header
		body  string
		err   error
	}{
		{"v1", "0003 0001 00000007 0002 6869 ffff", Header{3, 1, 7, str("hi")}, "ffff", nil},
		{"v2", "0003 0009 00000007 0002 6869 00 ff", Header{3, 9, 7, str("hi")}, "ff", nil},
		{"v2 with tags", "0003 0009 00000007 0000 02 01 01 aa 02 00 ff", Header{3, 9, 7, str("")}, "ff", nil},
		{"null client id", "0003 0001 00000007 ffff 01", Header{3, 1, 7, nil}, "01", nil},
		{"client id length −2", "0003 0001 00000007 fffe 01", Header{3, 1, 7, nil}, "01", nil},
		{"no body", "0012 0000 ffffffff ffff", Header{18, 0, -1, nil}, "", nil},
		{"ApiVersions of the future", "0012 7fff 00000001 ffff 00", Header{18, 0x7fff, 1, nil}, "", nil},
		{"ApiVersions v−1", "0012 ffff 00000001 ffff", Header{18, -1, 1, nil}, "", nil},
		{"three bytes", "000300", Header{}, "", ErrMalformed},
		{"no client id", "0003 0001 00000007", Header{3, 1, 7, nil}, "", ErrMalformed},
		{"client id beyond the frame", "0003 0001 00000007 0003 6869", Header{3, 1, 7, nil}, "", ErrMalformed},
		{"v2 without tags", "0003 0009 00000007 0000", Header{3, 9, 7, str("")}, "", ErrMalformed},
		{"v2 tag beyond the frame", "0003 0009 00000007 0000 01 00 02 aa", Header{3, 9, 7, str("")}, "", ErrMalformed},
		{"key −1", "ffff 0000 00000007 ffff", Header{-1, 0, 7, nil}, "", ErrUnknownKey},
		{"removed key", "0004 0000 00000007 ffff", Header{4, 0, 7, nil}, "", ErrUnknownKey},
		{"key 9999", "270f 0000 00000007 ffff", Header{9999, 0, 7, nil}, "", ErrUnknownKey},
		{"HTTP", hex.EncodeToString([]byte("GET / HTTP/1.1\r\n")), Header{0x4745, 0x5420, 0x2f204854, nil}, "", ErrUnknownKey},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, body, err := ParseHeader(unhex(t, tc.frame))
			if !errors.Is(err, tc.err) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if h.Key != tc.want.Key || h.Version != tc.want.Version || h.CorrelationID != tc.want.CorrelationID ||
				h.Client() != tc.want.Client() || (h.ClientID == nil) != (tc.want.ClientID == nil) {
				t.Errorf("header %+v, want %+v", h, tc.want)
			}
			if !bytes.Equal(body, unhex(t, tc.body)) {
				t.Errorf("body %x, want %s", body, tc.body)
			}
		})
	}
}

func TestHeaderKeepsClientID(t *testing.T) {
	var h Header
	a, b := unhex(t, "0003 0009 00000007 0002 6869 00"), unhex(t, "0003 0009 00000008 0002 686a 00")
	if _, err := h.Parse(a); err != nil {
		t.Fatal(err)
	}
	first := h.ClientID
	if n := testing.AllocsPerRun(100, func() { _, _ = h.Parse(a) }); n != 0 || h.ClientID != first {
		t.Errorf("%v allocations for an equal client id", n)
	}
	if _, err := h.Parse(b); err != nil || h.Client() != "hj" || *first != "hi" {
		t.Errorf("client id %q, the old one is %q", h.Client(), *first)
	}
}

// The table of flexible versions is kmsg's, for every key and version.
func TestFlexible(t *testing.T) {
	t.Parallel()
	for key := int16(-1); key <= 100; key++ {
		req := kmsg.RequestForKey(key)
		if removed := key >= 4 && key <= 7; (req != nil && !removed) != KnownKey(key) {
			t.Errorf("key %d: known %v", key, KnownKey(key))
		}
		if !KnownKey(key) {
			if Flexible(key, 5) {
				t.Errorf("unknown key %d is flexible", key)
			}
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			if got := Flexible(key, v); got != req.IsFlexible() {
				t.Errorf("%s v%d: flexible %v", KeyName(key), v, got)
			}
		}
		if name := kmsg.NameForKey(key); key != 45 /* kmsg shortens this one */ && !strings.EqualFold(strings.ReplaceAll(name, "ID", "Id"), KeyName(key)) {
			t.Errorf("key %d: %s, kmsg says %s", key, KeyName(key), name)
		}
		if l := layoutOf(key); l.max != req.MaxVersion() || l.min > l.max {
			t.Errorf("%s: versions %d to %d, kmsg's newest is %d", KeyName(key), l.min, l.max, req.MaxVersion())
		}
	}
	if got := KeyName(95); got != "Unknown(95)" {
		t.Error(got)
	}
}

func TestAppendResponseHeader(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		key, version int16
		want         string
	}{
		{3, 8, "00000102"}, {3, 9, "00000102 00"}, {18, 0, "00000102"}, {18, 3, "00000102"}, {18, 5, "00000102"},
		{1, 12, "00000102 00"}, {17, 1, "00000102"},
	} {
		if got := AppendResponseHeader(nil, tc.key, tc.version, 0x102); !bytes.Equal(got, unhex(t, tc.want)) {
			t.Errorf("%s v%d: %x, want %s", KeyName(tc.key), tc.version, got, tc.want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(unhex(f, "0003 0009 00000007 0002 6869 02 01 01 aa 02 00 ff"))
	f.Add(unhex(f, "0003 0001 00000007 fffe 01"))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseHeader(frame)
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		if err == nil && (!bytes.HasSuffix(frame, body) || !KnownKey(h.Key)) {
			t.Fatalf("%+v", h)
		}
	})
}

func BenchmarkHeader(b *testing.B) {
	frame := unhex(b, "0003 0009 00000007 0002 6869 00")
	b.ReportAllocs()
	var h Header
	for b.Loop() {
		if _, err := h.Parse(frame); err != nil {
			b.Fatal(err)
		}
	}
}
