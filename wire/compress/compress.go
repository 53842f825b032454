package compress

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Type is a codec, as bits 0–2 of a batch's attributes name it.
type Type int8

// The codecs, with their numbers on the wire. Zstd is legal from Produce v7 on; the others always.
const (
	None   Type = 0
	Gzip   Type = 1
	Snappy Type = 2
	Lz4    Type = 3
	Zstd   Type = 4
)

// Valid reports whether t is one of the five codecs; attribute bits can also hold 5, 6 and 7.
func (t Type) Valid() bool { return t >= None && t <= Zstd }

// String is Kafka's name of the codec.
func (t Type) String() string {
	switch t {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case Lz4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return fmt.Sprintf("codec(%d)", int8(t))
}

// MaxWindow is the largest zstd window in bytes that is accepted: what libzstd accepts unless told otherwise (2^27).
const MaxWindow = 128 << 20

// Errors of Decompress and Compress; test with errors.Is.
var (
	// ErrTooLarge: the payload inflates beyond the given limit.
	ErrTooLarge = errors.New("decompressed size exceeds the limit")
	// ErrCorrupt: the payload is not what its codec says.
	ErrCorrupt = errors.New("compressed payload is corrupt")
	// ErrUnknownType: the codec bits name no codec.
	ErrUnknownType = errors.New("unknown compression type")
)

// Kafka's level ranges, inclusive, and its defaults (Kafka: CompressionType, TopicConfig compression.*.level).
const (
	GzipMinLevel     = 1
	GzipMaxLevel     = 9
	GzipDefaultLevel = -1 // besides 1–9: the library's own choice
	Lz4MinLevel      = 1
	Lz4MaxLevel      = 17
	Lz4DefaultLevel  = 9
	ZstdMinLevel     = -131072
	ZstdMaxLevel     = 22
	ZstdDefaultLevel = 3
)

// CheckLevel reports an error if level is outside Kafka's range for t. None and Snappy have no level: any is fine.
func CheckLevel(t Type, level int) error {
	lo, hi := 0, 0
	switch t {
	case None, Snappy:
		return nil
	case Gzip:
		if level == GzipDefaultLevel {
			return nil
		}
		lo, hi = GzipMinLevel, GzipMaxLevel
	case Lz4:
		lo, hi = Lz4MinLevel, Lz4MaxLevel
	case Zstd:
		lo, hi = ZstdMinLevel, ZstdMaxLevel
	default:
		return fmt.Errorf("%w: %d", ErrUnknownType, int8(t))
	}
	if level < lo || level > hi {
		return fmt.Errorf("%s level %d is outside %d to %d", t, level, lo, hi)
	}
	return nil
}

// Target is the codec that a topic stores its batches in (compression.type and compression.*.level). The zero value
// keeps whatever the producer sent.
type Target struct {
	Fixed bool // false: the producer's codec is kept and the other fields mean nothing
	Type  Type // None: stored uncompressed
	Level int  // within Kafka's range for Type; used only when a batch is compressed here
}

// Levels are the three level settings of a topic.
type Levels struct{ Gzip, Lz4, Zstd int }

// DefaultLevels are Kafka's.
func DefaultLevels() Levels {
	return Levels{Gzip: GzipDefaultLevel, Lz4: Lz4DefaultLevel, Zstd: ZstdDefaultLevel}
}

// ParseTarget reads a compression.type value: producer, uncompressed, gzip, snappy, lz4 or zstd, in any case.
func ParseTarget(name string, l Levels) (Target, error) {
	t := Target{Fixed: true}
	switch strings.ToLower(name) {
	case "producer":
		return Target{}, nil
	case "uncompressed":
		t.Type = None
	case "gzip":
		t.Type, t.Level = Gzip, l.Gzip
	case "snappy":
		t.Type = Snappy
	case "lz4":
		t.Type, t.Level = Lz4, l.Lz4
	case "zstd":
		t.Type, t.Level = Zstd, l.Zstd
	default:
		return Target{}, fmt.Errorf("unknown compression.type %q", name)
	}
	return t, CheckLevel(t.Type, t.Level)
}

// For gives the codec that a batch which arrived in sent is stored in.
func (t Target) For(sent Type) Type {
	if t.Fixed {
		return t.Type
	}
	return sent
}

// String is the compression.type value.
func (t Target) String() string {
	switch {
	case !t.Fixed:
		return "producer"
	case t.Type == None:
		return "uncompressed"
	}
	return t.Type.String()
}

// Codecs compresses and decompresses. Make it with New; it is safe for concurrent use.
type Codecs struct {
	gzipReaders sync.Pool     // of *gzipReader
	gzipWriters [11]sync.Pool // of *gzip.Writer, index = level + 1 (−1 … 9)
	lz4Fast     sync.Pool     // of *lz4.Compressor
	lz4High     sync.Pool     // of *lz4.CompressorHC
	scratch     sync.Pool     // of *[]byte, snappy and lz4 blocks on their way out

	wide chan struct{} // a place for each zstd frame that is read through a window of its own, up to MaxWindow

	mu          sync.Mutex // over making the coders below, which the first use of zstd makes
	zstdDecoder *zstd.Decoder
	zstdEncoder map[zstd.EncoderLevel]*zstd.Encoder
}

// New makes a Codecs. It allocates next to nothing until a codec is used.
func New() *Codecs { return &Codecs{wide: make(chan struct{}, wideStreams)} }

// wideStreams is how many zstd payloads that may inflate beyond streamBytes are decompressed at once; more wait. Their
// windows come from whoever made the frames, up to MaxWindow each, so they are what bounds the memory of all together.
const wideStreams = 4

// Decompress appends the decompressed src to dst and returns the extended slice. limit bounds the appended bytes.
// dst and src must not overlap; on error the returned slice is dst with unspecified bytes after its length.
//
// Errors: ErrTooLarge, ErrCorrupt, ErrUnknownType (wrapped).
func (c *Codecs) Decompress(dst []byte, t Type, src []byte, limit int64) ([]byte, error) {
	limit = max(limit, 0)
	switch t {
	case None:
		if int64(len(src)) > limit {
			return dst, tooLarge(t, limit)
		}
		return append(dst, src...), nil
	case Gzip:
		return c.gunzip(dst, src, limit)
	case Snappy:
		return unsnappy(dst, src, limit)
	case Lz4:
		return unlz4(dst, src, limit)
	case Zstd:
		return c.unzstd(dst, src, limit)
	}
	return dst, fmt.Errorf("%w: %d", ErrUnknownType, int8(t))
}

// Compress appends src, compressed, to dst and returns the extended slice. level is one of CheckLevel's range; Snappy
// and None ignore it. dst and src must not overlap.
//
// Snappy is written in the xerial framing with big-endian version numbers, lz4 as frames of independent 64 KiB blocks,
// as Kafka's broker writes them. Kafka's zstd levels map to the encoder's four (docs/limits.md).
func (c *Codecs) Compress(dst []byte, t Type, level int, src []byte) ([]byte, error) {
	if err := CheckLevel(t, level); err != nil {
		return dst, err
	}
	switch t {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return c.gzip(dst, src, level)
	case Snappy:
		return c.snappy(dst, src), nil
	case Lz4:
		return c.lz4(dst, src, level)
	default:
		return c.zstd(dst, src, level)
	}
}

func tooLarge(t Type, limit int64) error {
	return fmt.Errorf("%s: %w of %d bytes", t, ErrTooLarge, limit)
}

func corrupt(t Type, format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", t, ErrCorrupt, fmt.Sprintf(format, args...))
}

// grow gives dst room for n more bytes in one allocation of exactly that size.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	out := make([]byte, len(dst), len(dst)+n)
	copy(out, dst)
	return out
}
