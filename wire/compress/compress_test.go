package compress

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// payloads are the inputs every codec must carry: empty, tiny, text, zeros, noise, and more than one block of each.
func payloads() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(rnd.Uint32())
	}
	var text bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&text, "line %d of %x\n", i, rnd.Uint32N(1000))
	}
	return map[string][]byte{
		"empty": {}, "one byte": {7}, "text": text.Bytes(), "zeros": make([]byte, 1<<20), "noise": noise,
		"one xerial block": text.Bytes()[:32<<10], "one lz4 block": text.Bytes()[:64<<10],
	}
}

func levels(t Type) []int {
	switch t {
	case Gzip:
		return []int{-1, 1, 9}
	case Lz4:
		return []int{1, 9, 17}
	case Zstd:
		return []int{-131072, 1, 3, 6, 22}
	}
	return []int{0}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	c := New()
	for _, typ := range []Type{None, Gzip, Snappy, Lz4, Zstd} {
		for name, in := range payloads() {
			for _, level := range levels(typ) {
				z, err := c.Compress([]byte("pre"), typ, level, in)
				if err != nil {
					t.Fatalf("%s %s level %d: %v", typ, name, level, err)
				}
				if string(z[:3]) != "pre" {
					t.Fatalf("%s %s: Compress overwrote dst", typ, name)
				}
				out, err := c.Decompress([]byte("pre"), typ, z[3:], int64(len(in)))
				if err != nil {
					t.Fatalf("%s %s level %d: %v", typ, name, level, err)
				}
				if !bytes.Equal(out[3:], in) || string(out[:3]) != "pre" {
					t.Fatalf("%s %s level %d: output differs", typ, name, level)
				}
				if out, err = readThrough(c, typ, z[3:], int64(len(in))); err != nil || !bytes.Equal(out, in) {
					t.Fatalf("%s %s level %d: Reader: output differs, %v", typ, name, level, err)
				}
				if len(in) == 0 {
					continue
				}
				if _, err := readThrough(c, typ, z[3:], int64(len(in)-1)); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%s %s level %d: Reader: one byte above the limit: error %v", typ, name, level, err)
				}
				if _, err := c.Decompress(nil, typ, z[3:], int64(len(in)-1)); !errors.Is(err, ErrTooLarge) {
					t.Fatalf("%s %s level %d: one byte above the limit: error %v", typ, name, level, err)
				}
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	c := New()
	in := payloads()["text"]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, typ := range []Type{Gzip, Snappy, Lz4, Zstd} {
				z, err := c.Compress(nil, typ, levels(typ)[0], in)
				if err != nil {
					t.Error(err)
				}
				out, err := c.Decompress(nil, typ, z, 1<<30)
				if err != nil || !bytes.Equal(out, in) {
					t.Errorf("%s: %v", typ, err)
				}
			}
		})
	}
	wg.Wait()
}

// foreign gives payloads as other writers make them.
func foreign(t testing.TB, in []byte) map[string]struct {
	typ Type
	z   []byte
} {
	t.Helper()
	type z = struct {
		typ Type
		z   []byte
	}
	out := map[string]z{}
	out["snappy raw"] = z{Snappy, s2.EncodeSnappy(nil, in)}
	xerial, err := New().Compress(nil, Snappy, 0, in)
	if err != nil {
		t.Fatal(err)
	}
	out["snappy xerial twice"] = z{Snappy, append(append([]byte{}, xerial...), xerial...)}
	little := append([]byte{}, xerial...)
	copy(little[8:], []byte{1, 0, 0, 0, 1, 0, 0, 0})
	out["snappy xerial, versions little endian"] = z{Snappy, little}

	var gz bytes.Buffer
	for range 2 {
		w := stdgzip.NewWriter(&gz)
		w.Name, w.Comment, w.Extra = "name", "comment", []byte("extra")
		if _, err := w.Write(in); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	out["gzip two members"] = z{Gzip, append([]byte{}, gz.Bytes()...)}
	gz.WriteString("what follows the last member is ignored")
	out["gzip with a tail"] = z{Gzip, gz.Bytes()}

	for _, o := range [][]lz4.Option{
		{lz4.BlockSizeOption(lz4.Block4Mb)},
		{lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true)},
		{lz4.SizeOption(uint64(len(in))), lz4.ChecksumOption(false), lz4.CompressionLevelOption(lz4.Level9)},
	} {
		var b bytes.Buffer
		w := lz4.NewWriter(&b)
		if err := w.Apply(o...); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(in); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprint("lz4 ", o)] = z{Lz4, b.Bytes()}
	}
	for name, o := range map[string][]zstd.EOption{
		"crc":            {zstd.WithEncoderCRC(true)},
		"single segment": {zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true)},
		"small window":   {zstd.WithWindowSize(1 << 20), zstd.WithEncoderConcurrency(1)},
	} {
		enc, err := zstd.NewWriter(nil, o...)
		if err != nil {
			t.Fatal(err)
		}
		out["zstd with size, "+name] = z{Zstd, enc.EncodeAll(in, nil)}
		var b bytes.Buffer
		enc.Reset(&b)
		for rest := in; len(rest) > 0; rest = rest[min(len(rest), 10_000):] { // written in pieces: no content size
			if _, err := enc.Write(rest[:min(len(rest), 10_000)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := enc.Close(); err != nil {
			t.Fatal(err)
		}
		skippable := []byte{0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
		out["zstd without size, "+name] = z{Zstd, append(skippable, b.Bytes()...)}
	}
	return out
}

func TestForeignWriters(t *testing.T) {
	t.Parallel()
	c := New()
	in := payloads()["text"]
	for name, f := range foreign(t, in) {
		want := in
		if name == "snappy xerial twice" || name == "gzip two members" || name == "gzip with a tail" {
			want = append(append([]byte{}, in...), in...)
		}
		got, err := c.Decompress(nil, f.typ, f.z, int64(len(want)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s: output differs", name)
		}
		if got, err := readThrough(c, f.typ, f.z, int64(len(want))); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: Reader: output differs, %v", name, err)
		}
		if _, err := c.Decompress(nil, f.typ, f.z, int64(len(want)-1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: one byte above the limit: error %v", name, err)
		}
	}
}

func TestWrittenForms(t *testing.T) {
	t.Parallel()
	c := New()
	in := payloads()["text"][:100_000]
	z, err := c.Compress(nil, Snappy, 0, in)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}
	if !bytes.Equal(z[:16], want) {
		t.Errorf("xerial header %x, want %x", z[:16], want)
	}
	var got []byte
	for rest := z[16:]; len(rest) > 0; {
		n := binary.BigEndian.Uint32(rest)
		b, err := s2.Decode(nil, rest[4:4+n])
		if err != nil || len(b) > 32<<10 {
			t.Fatalf("block of %d bytes: %v", len(b), err)
		}
		got, rest = append(got, b...), rest[4+n:]
	}
	if !bytes.Equal(got, in) {
		t.Error("xerial blocks differ")
	}

	z, err = c.Compress(nil, Lz4, 9, in)
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}; !bytes.Equal(z[:7], want) {
		t.Errorf("lz4 header %x, want %x", z[:7], want)
	}
	b, err := io.ReadAll(lz4.NewReader(bytes.NewReader(z)))
	if err != nil || !bytes.Equal(b, in) {
		t.Errorf("lz4 by its own library: %v", err)
	}

	z, err = c.Compress(nil, Gzip, 6, in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := stdgzip.NewReader(bytes.NewReader(z))
	if err != nil {
		t.Fatal(err)
	}
	if b, err = io.ReadAll(r); err != nil || !bytes.Equal(b, in) {
		t.Errorf("gzip by the standard library: %v", err)
	}
}

func TestXXH32(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]uint32{
		"": 0x02CC5D05, "a": 0x550D7456, "abc": 0x32D153FF, "Nobody inspects the spammish repetition": 0xE2293B2F,
	} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("%q: %#x, want %#x", in, got, want)
		}
	}
}

func TestCorrupt(t *testing.T) { // not parallel: it measures
	c := New()
	good := map[Type][]byte{}
	for _, typ := range []Type{Gzip, Snappy, Lz4, Zstd} {
		z, err := c.Compress(nil, typ, levels(typ)[0], payloads()["text"])
		if err != nil {
			t.Fatal(err)
		}
		good[typ] = z
	}
	edit := func(t Type, at int, b byte) []byte {
		z := append([]byte{}, good[t]...)
		z[at] = b
		return z
	}
	for _, tc := range []struct {
		name string
		typ  Type
		z    []byte
	}{
		{"gzip plain bytes", Gzip, []byte("plain bytes, no gzip at all")},
		{"gzip empty", Gzip, nil},
		{"gzip cut", Gzip, good[Gzip][:len(good[Gzip])-9]},
		{"snappy empty", Snappy, nil},
		{"snappy declares 4 GiB", Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
		{"snappy repeat of s2", Snappy, []byte{16, 0x0c, 'a', 'b', 'c', 'd', 0x21, 4, 0x01, 0}},
		{"xerial chunk −1", Snappy, append(append([]byte{}, good[Snappy][:16]...), 0xff, 0xff, 0xff, 0xff)},
		{"xerial chunk beyond the end", Snappy, append(append([]byte{}, good[Snappy][:16]...), 0x7f, 0xff, 0xff, 0xff)},
		{"xerial cut", Snappy, good[Snappy][:len(good[Snappy])-1]},
		{"lz4 magic", Lz4, edit(Lz4, 0, 5)},
		{"lz4 dependent blocks", Lz4, edit(Lz4, 4, 0x40)},
		{"lz4 header checksum", Lz4, edit(Lz4, 6, 0)},
		{"lz4 without end mark", Lz4, good[Lz4][:len(good[Lz4])-4]},
		{"lz4 block too long", Lz4, edit(Lz4, 9, 0x7f)},
		{"zstd empty", Zstd, nil},
		{"zstd magic", Zstd, edit(Zstd, 0, 1)},
		{"zstd cut", Zstd, good[Zstd][:len(good[Zstd])-1]},
		{"zstd window of 2 GiB", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0x01, 0, 0}},
		{"zstd declares 4 GiB", Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0xff, 0xff, 0xff, 0xff, 0x03, 0, 0, 7}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if alloc := allocated(func() {
				if _, err := c.Decompress(nil, tc.typ, tc.z, 1<<31); !errors.Is(err, ErrCorrupt) {
					t.Errorf("error %v, want ErrCorrupt", err)
				}
				if _, err := readThrough(c, tc.typ, tc.z, 1<<31); !errors.Is(err, ErrCorrupt) {
					t.Errorf("Reader: error %v, want ErrCorrupt", err)
				}
			}); alloc > 16<<20 {
				t.Errorf("allocated %d bytes", alloc)
			}
		})
	}
	if _, err := c.Decompress(nil, 5, nil, 1); !errors.Is(err, ErrUnknownType) {
		t.Errorf("codec 5: %v", err)
	}
}

// readThrough decompresses by a Reader, in reads of odd sizes.
func readThrough(c *Codecs, typ Type, z []byte, limit int64) ([]byte, error) {
	r, err := c.NewReader(typ, z, limit)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []byte
	buf := make([]byte, 777)
	for {
		n, err := r.Read(buf)
		out = append(out, buf[:n]...)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

// allocated gives the bytes that fn allocated. Only meaningful while no other test of the package runs, within slack.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Not parallel: it measures allocations.
func TestBombs(t *testing.T) {
	const size, limit = 24 << 20, 1 << 20
	c := New()
	zeros := make([]byte, size)
	bombs := foreign(t, zeros)
	for _, typ := range []Type{Gzip, Snappy, Lz4, Zstd} {
		z, err := c.Compress(nil, typ, levels(typ)[0], zeros)
		if err != nil {
			t.Fatal(err)
		}
		bombs["own "+typ.String()] = struct {
			typ Type
			z   []byte
		}{typ, z}
		if typ == Gzip { // a trailer that declares 16 bytes
			lie := append([]byte{}, z...)
			copy(lie[len(lie)-4:], []byte{16, 0, 0, 0})
			bombs["gzip that lies"] = struct {
				typ Type
				z   []byte
			}{typ, lie}
		}
	}
	for name, b := range bombs {
		alloc := allocated(func() {
			if _, err := c.Decompress(nil, b.typ, b.z, limit); !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s: error %v, want ErrTooLarge", name, err)
			}
		})
		if alloc > limit+8<<20 {
			t.Errorf("%s: allocated %d bytes with a limit of %d", name, alloc, limit)
		}
		// A Reader needs little memory for what it gives, even where the limit is far away. One raw snappy block is an
		// exception, but can not inflate far; a single zstd segment is its own window.
		alloc = allocated(func() {
			r, err := c.NewReader(b.typ, b.z, size)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer r.Close()
			if n, err := io.Copy(io.Discard, struct{ io.Reader }{r}); err != nil && !errors.Is(err, ErrTooLarge) && name != "gzip that lies" {
				t.Errorf("%s: %d bytes, %v", name, n, err)
			}
		})
		if alloc > 16<<20 && name != "snappy raw" && name != "zstd with size, single segment" {
			t.Errorf("%s: a Reader allocated %d bytes", name, alloc)
		}
	}
}

func TestTarget(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		l    Levels
		want Target
		ok   bool
	}{
		{"producer", DefaultLevels(), Target{}, true},
		{"Uncompressed", DefaultLevels(), Target{Fixed: true, Type: None}, true},
		{"gzip", DefaultLevels(), Target{Fixed: true, Type: Gzip, Level: -1}, true},
		{"lz4", DefaultLevels(), Target{Fixed: true, Type: Lz4, Level: 9}, true},
		{"zstd", Levels{Zstd: 22}, Target{Fixed: true, Type: Zstd, Level: 22}, true},
		{"zstd", Levels{Zstd: 23}, Target{}, false},
		{"gzip", Levels{Gzip: 0}, Target{}, false},
		{"lz4", Levels{Lz4: 18}, Target{}, false},
		{"none", DefaultLevels(), Target{}, false},
	} {
		got, err := ParseTarget(tc.name, tc.l)
		if (err == nil) != tc.ok || tc.ok && got != tc.want {
			t.Errorf("%s %+v: %+v, %v", tc.name, tc.l, got, err)
		}
	}
	if got := (Target{}).For(Lz4); got != Lz4 {
		t.Errorf("producer keeps %s", got)
	}
	if got := (Target{Fixed: true, Type: Zstd}).For(Lz4); got != Zstd {
		t.Errorf("fixed gives %s", got)
	}
}

func FuzzDecompress(f *testing.F) {
	c := New()
	in := payloads()["text"][:5000]
	for _, z := range foreign(f, in) {
		f.Add(int8(z.typ), z.z)
	}
	f.Fuzz(func(t *testing.T, typ int8, z []byte) {
		const limit = 1 << 20
		out, err := c.Decompress(nil, Type(typ), z, limit)
		again, rerr := readThrough(c, Type(typ), z, limit)
		if err == nil && (rerr != nil || !bytes.Equal(out, again)) {
			t.Fatalf("%s: the Reader differs: %v", Type(typ), rerr)
		}
		if err == nil && len(out) > limit {
			t.Fatalf("%d bytes above the limit", len(out))
		}
		if err == nil && Type(typ).Valid() {
			again, err := c.Compress(nil, Type(typ), levels(Type(typ))[0], out)
			if err != nil {
				t.Fatal(err)
			}
			back, err := c.Decompress(nil, Type(typ), again, limit)
			if err != nil || !bytes.Equal(back, out) {
				t.Fatalf("%s: round trip: %v", Type(typ), err)
			}
		}
	})
}

// However many wide zstd payloads are read at the same time, only so many windows exist: a further one waits its turn.
func TestWideStreamsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New()
		src, err := c.Compress(nil, Zstd, 3, bytes.Repeat([]byte("wide "), 2<<20))
		if err != nil {
			t.Fatal(err)
		}
		var open []*Reader
		for range wideStreams {
			r, err := c.NewReader(Zstd, src, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, r)
		}
		var got atomic.Int64
		go func() {
			r, err := c.NewReader(Zstd, src, 1<<30)
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			n, err := io.Copy(io.Discard, r)
			if err != nil {
				t.Error(err)
			}
			got.Store(n)
		}()
		synctest.Wait()
		if got.Load() != 0 {
			t.Fatal("one more than wideStreams was read at once")
		}
		for _, r := range open {
			r.Close()
		}
		synctest.Wait()
		if got.Load() != 10<<20 {
			t.Fatalf("read %d bytes after the others had ended, want %d", got.Load(), 10<<20)
		}
	})
}
