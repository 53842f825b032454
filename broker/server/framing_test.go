package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// framingRoutes serves a few APIs in the ranges of Kafka 4.4, with handlers that answer the least that is legal.
func framingRoutes() testRoutes {
	reply := func(_ context.Context, req *Request, w Responder) {
		resp := req.Msg.ResponseKind()
		if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
			v.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MinVersion: 0, MaxVersion: 5}}
			if req.Unsupported {
				v.ErrorCode = 35
			}
		}
		w.Reply(resp)
	}
	return testRoutes{
		0:  {Key: 0, Min: 0, Max: 13, FirstServed: 3, Handle: reply},
		1:  {Key: 1, Min: 4, Max: 18, Handle: reply},
		3:  {Key: 3, Min: 0, Max: 13, Handle: reply},
		12: {Key: 12, Min: 0, Max: 4, Handle: reply},
		18: {Key: 18, Min: 0, Max: 5, Handle: reply},
	}
}

// header is a request header with client id "t".
func header(key, version int16, corr int32) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(corr))
	return append(b, 0, 1, 't')
}

func with(b []byte, more ...byte) []byte { return append(slices.Clone(b), more...) }

func size(n int32, more ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(n)), more...)
}

const (
	closedOutcome  = "closed"
	silenceOutcome = "silence"
)

// framingCases are the odd frames that were sent to a running Kafka 4.4, and what it did. Answers are given from the
// correlation id on; those of Metadata are as an empty cluster gives them.
func framingCases() []struct {
	name string
	send []byte
	want string
} {
	versions := func(corr int32) string { return hex.EncodeToString(size(corr)) + "0023" + "00000001" + "001200000005" }
	const okVersions = "0000" + "00000001" + "001200000005"
	const noTopics = "00000000" + "ffffffff" + "00000000" // brokers, controller, topics of Metadata v1
	v3 := append(header(18, 3, 2), 0, 2, 'a', 2, '1', 0)
	v3answer := "00000002" + "0000" + "02" + "00120000000500" + "00000000" + "00"
	after := func(version int16) []byte {
		first := header(18, version, 1)
		if version >= 3 {
			first = append(first, 0)
		}
		return append(frame(first), frame(v3)...)
	}
	return []struct {
		name string
		send []byte
		want string
	}{
		{"32 bytes of 0xff", bytes.Repeat([]byte{0xff}, 32), closedOutcome},
		{"ApiVersions v-1", frame(header(18, -1, 1)), versions(1)},
		{"ApiVersions v0", frame(header(18, 0, 1)), "00000001" + okVersions},
		{"ApiVersions v0 with 4 bytes too many", frame(with(header(18, 0, 1), 1, 2, 3, 4)), "00000001" + okVersions},
		{"ApiVersions v3 after v-1", after(-1), versions(1) + v3answer},
		{"ApiVersions v3 after v32767", after(32767), versions(1) + v3answer},
		{"ApiVersions v3 after v6", after(6), versions(1) + v3answer},
		{"ApiVersions v3 after v99", after(99), versions(1) + v3answer},
		{"ApiVersions v32767", frame(with(header(18, 32767, 1), 0)), versions(1)},
		{"ApiVersions v6", frame(with(header(18, 6, 1), 0)), versions(1)},
		{"ApiVersions v99", frame(with(header(18, 99, 1), 0)), versions(1)},
		{"ApiVersions v99 without header tags", frame(header(18, 99, 1)), closedOutcome},
		{"ApiVersions v3 cut", frame(append(header(18, 3, 1), 0, 2, 'a')), closedOutcome},
		{"ApiVersions v3 null name", frame(append(header(18, 3, 1), 0, 0, 0, 0)), closedOutcome},
		{"Fetch v12 garbage body", frame(with(header(1, 12, 1), bytes.Repeat([]byte{0xee}, 40)...)), closedOutcome},
		{"HTTP GET", []byte("GET / HTTP/1.1\r\nHost: localhost:9092\r\n\r\n"), closedOutcome},
		{"Metadata v1 array length -2", frame(with(header(3, 1, 1), 0xff, 0xff, 0xff, 0xfe)), "00000001" + noTopics},
		{"Metadata v1 array length 2147483647", frame(with(header(3, 1, 1), 0x7f, 0xff, 0xff, 0xff)), closedOutcome},
		{"Metadata v1 cut body", frame(with(header(3, 1, 1), 0, 0, 0, 1, 0, 5, 'a')), closedOutcome},
		{"Metadata v9 varint of 6 bytes", frame(with(header(3, 9, 1), 0, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0)),
			closedOutcome},
		{"Produce v9 records length beyond the frame", frame(with(header(0, 9, 1), 0, 0, 0, 1, 0, 0, 0, 9, 2, 2, 't', 2,
			0, 0, 0, 0, 0xff, 0x7f, 1, 2, 3)), closedOutcome},
		{"Produce v0", frame(with(header(0, 0, 1), 0, 1, 0, 0, 0, 9, 0, 0, 0, 0)), closedOutcome},
		{"Produce v2", frame(with(header(0, 2, 1), 0, 1, 0, 0, 0, 9, 0, 0, 0, 0)), closedOutcome},
		{"Produce v14", frame(with(header(0, 14, 1), 0, 0, 0, 1, 0, 0, 0, 9, 1, 0)), closedOutcome},
		{"TLS hello", []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), closedOutcome},
		{"client id length -2", frame(append(header(3, 1, 1)[:8], 0xff, 0xfe, 0xff, 0xff, 0xff, 0xff)),
			"00000001" + noTopics},
		{"client id longer than the frame", frame(append(header(3, 1, 1)[:8], 0x7f, 0xff, 't', 0, 0, 0, 0)), closedOutcome},
		{"controller key 52 Vote", frame(with(header(52, 0, 1), 0, 0, 1, 0)), closedOutcome},
		{"controller key 62 BrokerRegistration", frame(with(header(62, 0, 1), 0, 0, 0, 0, 1)), closedOutcome},
		{"frame cut in half", frame(header(18, 0, 1))[:9], silenceOutcome},
		{"header of 3 bytes", frame([]byte{0, 18, 0}), closedOutcome},
		{"header without client id", frame(header(18, 0, 1)[:8]), closedOutcome},
		{"key -1", frame(header(-1, 0, 1)), closedOutcome},
		{"null client id", frame(append(header(3, 1, 1)[:8], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)), "00000001" + noTopics},
		{"removed key 4", frame(with(header(4, 0, 1), 0, 0, 0, 0)), closedOutcome},
		{"removed key 6", frame(with(header(6, 0, 1), 0, 0, 0, 0)), closedOutcome},
		{"size -1", size(-1), closedOutcome},
		{"size -2147483648", size(-2147483648), closedOutcome},
		{"size 0", size(0), closedOutcome},
		{"size 104857600 (at the limit), nothing more", size(104857600), silenceOutcome},
		{"size 104857601 (one above the limit)", size(104857601), closedOutcome},
		{"size 2147483647", size(2147483647), closedOutcome},
		{"three bytes", []byte{0, 0, 0}, silenceOutcome},
		{"unknown key 9999", frame(header(9999, 0, 1)), closedOutcome},
		{"answered, then refused", append(frame(header(18, 0, 1)), size(-1)...), "00000001" + okVersions + closedOutcome},
	}
}

// TestFraming sends each odd frame, a byte at a time and at once, and wants what Kafka 4.4 does.
func TestFraming(t *testing.T) {
	s, logs := start(t, framingRoutes(), Limits{})
	other := dial(t, s)
	for _, tc := range framingCases() {
		t.Run(tc.name, func(t *testing.T) {
			for _, chunk := range []int{len(tc.send), 1} {
				nc := dial(t, s)
				for b := range slices.Chunk(tc.send, chunk) {
					if _, err := nc.Write(b); err != nil {
						break // closed in the middle
					}
				}
				if got := outcome(t, nc, tc.want); got != tc.want {
					t.Errorf("in chunks of %d: %s, want %s", chunk, got, tc.want)
				}
				_ = nc.Close()
			}
		})
	}
	mustWrite(t, other, frame(header(18, 0, 5)))
	mustRead(t, other, 5)
	waitFor(t, func() bool { return lines(logs, "level=WARN") > 4 })
}

// outcome describes what the server did: answers without their sizes in hex, then whether it closed. Silence is taken
// for granted after a short while.
func outcome(t *testing.T, nc net.Conn, want string) string {
	t.Helper()
	got := ""
	for {
		if want == silenceOutcome {
			_ = nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		}
		if got == want || !strings.HasPrefix(want, got) {
			return got
		}
		var n [4]byte
		if _, err := io.ReadFull(nc, n[:]); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return got + silenceOutcome
			}
			return got + closedOutcome
		}
		b := make([]byte, binary.BigEndian.Uint32(n[:]))
		if _, err := io.ReadFull(nc, b); err != nil {
			t.Fatalf("read answer: %v", err)
		}
		got += hex.EncodeToString(b)
	}
}

// TestCloseLogIsRateLimited closes many connections for one reason.
func TestCloseLogIsRateLimited(t *testing.T) {
	s, logs := start(t, framingRoutes(), Limits{})
	before := time.Now()
	for range 50 {
		nc := dial(t, s)
		mustWrite(t, nc, size(-1))
		mustBeClosed(t, nc)
		_ = nc.Close()
	}
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) == 0 })
	most := 1 + int(time.Since(before)/closeLogPeriod)
	if n := lines(logs, "frame size out of range"); n == 0 || n > most {
		t.Errorf("%d lines for 50 refusals, want 1 to %d", n, most)
	}
}

// TestClientIDIsQuoted plants a line break in the client id of a refused request.
func TestClientIDIsQuoted(t *testing.T) {
	s, logs := start(t, framingRoutes(), Limits{})
	nc := dial(t, s)
	b := binary.BigEndian.AppendUint32([]byte{0, 18, 0, 0}, 1)
	b = append(b, 0, 9)
	b = append(b, "a\nlevel=E"...)
	mustWrite(t, nc, frame(b))
	mustRead(t, nc, 1)
	mustWrite(t, nc, size(-1))
	mustBeClosed(t, nc)
	waitFor(t, func() bool { return lines(logs, `client_id="a\nlevel=E"`) == 1 })
}
