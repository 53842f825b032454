package wire

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// filler fills kmsg requests with random values, deep and small enough to be quick.
type filler struct{ r *rand.Rand }

func (f filler) fill(v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.r.IntN(2) == 0)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(f.r.Int64N(100) - 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		v.SetUint(f.r.Uint64N(100))
	case reflect.Float64:
		v.SetFloat(f.r.Float64())
	case reflect.String:
		v.SetString(string(make([]byte, f.length())))
	case reflect.Pointer:
		if f.r.IntN(4) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), depth+1)
		}
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Slice:
		if f.r.IntN(5) == 0 {
			return
		}
		n := f.r.IntN(8)
		if depth > 2 {
			n = f.r.IntN(3)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Struct:
		if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
			for range f.r.IntN(3) * f.r.IntN(2) {
				tags.Set(100+f.r.Uint32N(40), make([]byte, f.length()))
			}
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() && v.Type().Field(i).Name != "Version" {
				f.fill(v.Field(i), depth)
			}
		}
	}
}

func (f filler) length() int {
	if f.r.IntN(20) == 0 {
		return f.r.IntN(3000)
	}
	return f.r.IntN(20)
}

// decode gives the bytes that kmsg allocates for body, and its error. The counter is the whole process's: what the
// runtime allocates beside (a collector's workers, a timer) is added to some measurements and never taken off, so the
// smallest of a few is what the decoding took.
func decode(key, version int16, body []byte) (allocated int64, err error) {
	allocated = math.MaxInt64
	for range 5 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		err = req.ReadFrom(body)
		runtime.ReadMemStats(&after)
		allocated = min(allocated, int64(after.TotalAlloc-before.TotalAlloc))
	}
	return allocated, err
}

// measureSlack is what a measurement may see beside the decoding: the tiny allocator, the runtime, other goroutines.
const measureSlack = 4 << 10

// Not parallel: it measures allocations. Every key × version: what kmsg writes costs at least what kmsg then allocates,
// and not much more.
func TestDecodeCost(t *testing.T) {
	f := filler{rand.New(rand.NewPCG(3, 4))}
	for key := range int16(len(layouts)) {
		l := layoutOf(key)
		if l == nil {
			continue
		}
		for version := l.min; version <= l.max; version++ {
			for range 4 {
				req := kmsg.RequestForKey(key)
				req.SetVersion(version)
				f.fill(reflect.ValueOf(req).Elem(), 0)
				body := req.AppendTo(nil)
				cost, err := DecodeCost(key, version, body)
				if err != nil {
					t.Fatalf("%s v%d: %v\n%x\n%+v", KeyName(key), version, err, body, req)
				}
				got, err := decode(key, version, body)
				if err != nil {
					t.Fatalf("%s v%d: kmsg: %v", KeyName(key), version, err)
				}
				if got > cost+measureSlack {
					t.Errorf("%s v%d: kmsg allocates %d, computed %d", KeyName(key), version, got, cost)
				}
				if cost > 2*got+measureSlack {
					t.Errorf("%s v%d: computed %d, kmsg allocates only %d", KeyName(key), version, cost, got)
				}
				if tail, err := DecodeCost(key, version, append(body, 1, 2, 3, 4)); err != nil || tail != cost {
					t.Errorf("%s v%d: with bytes after it: %d, %v", KeyName(key), version, tail, err)
				}
			}
		}
	}
}

// Every prefix of a request is malformed, or what kmsg reads too; nothing is allocated for the answer.
func TestDecodeCostCut(t *testing.T) {
	t.Parallel()
	f := filler{rand.New(rand.NewPCG(5, 6))}
	for key := range int16(len(layouts)) {
		l := layoutOf(key)
		if l == nil {
			continue
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(l.max)
		f.fill(reflect.ValueOf(req).Elem(), 0)
		body := req.AppendTo(nil)
		for n := range body {
			_, err := DecodeCost(key, l.max, body[:n])
			again := kmsg.RequestForKey(key)
			again.SetVersion(l.max)
			if kerr := again.ReadFrom(body[:n]); (err == nil) != (kerr == nil) {
				t.Fatalf("%s v%d cut to %d of %d bytes: %v, kmsg: %v", KeyName(key), l.max, n, len(body), err, kerr)
			}
		}
	}
}

func TestDecodeCostMalformed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		key, version int16
		body         string
		err          error
	}{
		{"Metadata v1 of no topics", 3, 1, "00000000", nil},
		{"Metadata v1 of all topics", 3, 1, "ffffffff", nil},
		{"Metadata v1 array length −2", 3, 1, "fffffffe", nil},
		{"Metadata v0 null array", 3, 0, "ffffffff", errNull},
		{"Metadata v1 array length 2147483647", 3, 1, "7fffffff", errCount},
		{"Metadata v1 cut body", 3, 1, "00000001 0005 6161", errShort},
		{"Metadata v1 null name", 3, 1, "00000001 ffff", errNull},
		{"Metadata v9 varint of 6 bytes", 3, 9, "808080808001", errVarint},
		{"Metadata v9 of 2³¹ topics", 3, 9, "ffffffff07", errCount},
		{"Metadata v12 of all topics", 3, 12, "00 01 00 00", nil},
		{"Metadata v12 unknown tag", 3, 12, "00 01 00 01 63 02 aaaa", nil},
		{"Metadata v12 unknown tag beyond the end", 3, 12, "00 01 00 01 63 03 aaaa", errShort},
		{"Metadata v12 bytes after it", 3, 12, "00 01 00 00 00000000", nil},
		{"ApiVersions v0 with four bytes too many", 18, 0, "00000000", nil},
		{"ApiVersions v6", 18, 6, "", ErrMalformed},
		{"Produce v2", 0, 2, "", ErrMalformed},
		{"Produce v9 records beyond the frame", 0, 9, "00 0001 000003e8 02 02 61 02 00000000 ff01", errShort},
		{"Produce v9 null records", 0, 9, "00 0001 000003e8 02 02 61 02 00000000 00 00 00 00", nil},
		{"JoinGroup v6 null member", 11, 6, "02 67 00000001 00000001 00", errNull},
		{"a removed key", 5, 0, "", ErrUnknownKey},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cost, err := DecodeCost(tc.key, tc.version, unhex(t, tc.body))
			if !errors.Is(err, tc.err) || (err != nil) != (tc.err != nil) {
				t.Fatalf("error %v, want %v", err, tc.err)
			}
			if err != nil && cost != 0 {
				t.Errorf("cost %d beside an error", cost)
			}
		})
	}
}

// DESIGN.md fact 16: a Metadata frame of 16 MiB that holds nothing but counts and empty names.
func TestDecodeCostHostile(t *testing.T) {
	const n = 8 << 20
	body := make([]byte, 4+2*n+3)
	body[0], body[1], body[2], body[3] = n>>24, n>>16&0xff, n>>8&0xff, n&0xff
	cost, err := DecodeCost(3, 8, body)
	if err != nil {
		t.Fatal(err)
	}
	if cost < n*24 {
		t.Errorf("cost %d for %d topics", cost, n)
	}
	if allocs := testing.AllocsPerRun(1, func() { _, _ = DecodeCost(3, 8, body) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Not parallel: it measures allocations. Unknown tags go into a map, which grows.
func TestDecodeCostTags(t *testing.T) {
	for _, n := range []uint32{1, 7, 8, 9, 15, 29, 100, 1000, 20_000} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.SetVersion(3)
		for i := range n {
			req.UnknownTags.Set(i, nil)
		}
		body := req.AppendTo(nil)
		cost, err := DecodeCost(18, 3, body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(18, 3, body)
		if err != nil || got > cost+measureSlack {
			t.Errorf("%d tags: computed %d, kmsg allocates %d, %v", n, cost, got, err)
		}
	}
}

func FuzzDecodeCost(f *testing.F) {
	fill := filler{rand.New(rand.NewPCG(7, 8))}
	for key := range int16(len(layouts)) {
		if l := layoutOf(key); l != nil {
			req := kmsg.RequestForKey(key)
			req.SetVersion(l.max)
			fill.fill(reflect.ValueOf(req).Elem(), 1)
			f.Add(key, l.max, req.AppendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		l := layoutOf(key)
		if l == nil || version < l.min || version > l.max {
			if _, err := DecodeCost(key, version, body); !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		cost, err := DecodeCost(key, version, body)
		if err != nil {
			if errors.Is(err, errNull) || errors.Is(err, errStringLen) {
				return // Kafka's rules, which kmsg does not share
			}
			if _, kerr := decode(key, version, body); kerr == nil {
				t.Fatalf("%s v%d: %v, but kmsg decodes it", KeyName(key), version, err)
			}
			return
		}
		got, kerr := decode(key, version, body)
		if kerr != nil {
			t.Fatalf("%s v%d: kmsg: %v", KeyName(key), version, kerr)
		}
		if got > cost+cost/10+64<<10 {
			t.Fatalf("%s v%d: kmsg allocates %d, computed %d", KeyName(key), version, got, cost)
		}
	})
}

func BenchmarkDecodeCost(b *testing.B) {
	for _, n := range []int{1, 100} {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(9)
		for i := range n {
			topic := kmsg.NewProduceRequestTopic()
			topic.Topic = fmt.Sprintf("topic-%d", i)
			part := kmsg.NewProduceRequestTopicPartition()
			part.Records = make([]byte, 1000)
			topic.Partitions = append(topic.Partitions, part)
			req.Topics = append(req.Topics, topic)
		}
		body := req.AppendTo(nil)
		b.Run(fmt.Sprintf("produce/topics=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := DecodeCost(0, 9, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
