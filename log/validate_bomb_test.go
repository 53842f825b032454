package log

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// X5: what a batch inflates to is walked piece by piece: a bomb costs no memory, whether its records are legal, lie about
// their number, break a rule each, or go beyond the limit.
func TestValidateBombs(t *testing.T) {
	const mib = 1 << 20
	build := func(codec compress.Type, count, size int) []byte {
		b := batch.NewBuilder(batch.Spec{Codec: codec, Level: defaultLevel(codec)})
		value := make([]byte, size)
		for range count {
			b.Add(batch.NewRecord{Timestamp: 1, Value: value})
		}
		out, _, err := b.Build(nil, compress.New())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, codec := range []compress.Type{compress.Gzip, compress.Lz4} {
		one, many := build(codec, 1, 48*mib), build(codec, 600_000, 64)
		for _, c := range []struct {
			name   string
			raw    []byte
			config Config
			code   *kerr.Error
			named  int
		}{
			{"one record", one, Config{TimestampBeforeMax: Forever}, nil, 0},
			{"many records", many, Config{TimestampBeforeMax: Forever}, nil, 0},
			{"many refused", many, Config{TimestampBeforeMax: time.Hour}, kerr.InvalidTimestamp, maxRecordErrors},
			{"beyond the limit", one, Config{TimestampBeforeMax: Forever, MaxDecompressedBytes: 40 * mib}, kerr.InvalidRecord, 0},
		} {
			t.Run(codec.String()+", "+c.name, func(t *testing.T) {
				c.config.MaxMessageBytes, c.config.SegmentBytes, c.config.TimestampAfterMax = 100*mib, 1<<30, Forever
				if c.config.MaxDecompressedBytes == 0 {
					c.config.MaxDecompressedBytes = 1 << 30
				}
				o := ValidateOptions{Config: &c.config, Now: time.Unix(1e9, 0), ProduceVersion: 9, Codecs: compress.New()}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := Validate(c.raw, o)
				runtime.ReadMemStats(&after)
				var v *ValidationError
				if errors.As(err, &v) != (c.code != nil) || v != nil && (v.Code != c.code || len(v.Records) != c.named) {
					t.Fatalf("validate: %v", err)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > 20*mib {
					t.Errorf("%d bytes allocated for a batch of %d", n, len(c.raw))
				}
			})
		}
	}
}
