package compress

import (
	"bytes"
	"errors"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
)

// What Kafka 4.4 takes and refuses of odd but well-meant payloads, as it answered a Produce of each.
func TestOddPayloads(t *testing.T) {
	t.Parallel()
	c := New()
	in := payloads()["text"][:20_000]
	z := func(typ Type, level int) []byte {
		b, err := c.Compress(nil, typ, level, in)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	edit := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b)
		b[(at+len(b))%len(b)] = v
		return b
	}
	lz := func(o ...lz4.Option) []byte {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		err := w.Apply(o...)
		if err == nil {
			_, err = w.Write(in)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	garbage, skippable := []byte("garbage, longer than twenty-six bytes"), []byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9}
	sum := lz(lz4.ChecksumOption(true))
	for _, tc := range []struct {
		name  string
		typ   Type
		z     []byte
		taken bool
	}{
		{"gzip, garbage after it", Gzip, join(z(Gzip, 6), garbage), true},
		{"gzip, three bytes after it", Gzip, join(z(Gzip, 6), garbage[:3]), true},
		{"gzip, wrong size", Gzip, edit(z(Gzip, 6), -1, 0xff), false},
		{"gzip, trailer cut", Gzip, z(Gzip, 6)[:len(z(Gzip, 6))-4], false},
		{"snappy xerial version 0", Snappy, edit(z(Snappy, 0), 11, 0), true},
		{"snappy xerial, compatible only with 9", Snappy, edit(z(Snappy, 0), 15, 9), true},
		{"snappy xerial, three bytes after it", Snappy, join(z(Snappy, 0), garbage[:3]), true},
		{"snappy xerial, empty chunk", Snappy, join(z(Snappy, 0), make([]byte, 4)), false},
		{"snappy raw, two bytes after it", Snappy, join(s2.EncodeSnappy(nil, in), []byte{0, 1}), false},
		{"snappy raw in s2's dialect", Snappy, s2.EncodeBest(nil, in), false},
		{"lz4, wrong content checksum", Lz4, edit(sum, -1, sum[len(sum)-1]+1), true},
		{"lz4, content checksum cut", Lz4, sum[:len(sum)-4], false},
		{"lz4, garbage after it", Lz4, join(z(Lz4, 9), garbage), true},
		{"lz4, another frame after it", Lz4, join(z(Lz4, 9), z(Lz4, 9)), true},
		{"lz4 legacy", Lz4, lz(lz4.LegacyOption(true)), false},
		{"lz4, skippable frame first", Lz4, join(skippable, z(Lz4, 9)), false},
		{"zstd, skippable frame after it", Zstd, join(z(Zstd, 3), skippable), true},
		{"zstd, skippable frame first", Zstd, join(skippable, z(Zstd, 3)), true},
		{"zstd, garbage after it", Zstd, join(z(Zstd, 3), garbage), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out, err := c.Decompress(nil, tc.typ, tc.z, 1<<20)
			if tc.taken && (err != nil || !bytes.Equal(out, in)) {
				t.Errorf("refused or read as something else: %v", err)
			}
			if !tc.taken && !errors.Is(err, ErrCorrupt) {
				t.Errorf("error %v, want ErrCorrupt", err)
			}
			if again, rerr := readThrough(c, tc.typ, tc.z, 1<<20); (rerr == nil) != (err == nil) ||
				tc.taken && !bytes.Equal(again, in) {
				t.Errorf("a Reader differs: %v", rerr)
			}
		})
	}
}
