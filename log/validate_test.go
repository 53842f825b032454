package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/kajamq/kaja/wire/batch"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/twmb/franz-go/pkg/kerr"
)

// put overwrites bytes of a batch and renews its checksum.
func put(raw []byte, at int, data ...byte) []byte {
	out := bytes.Clone(raw)
	copy(out[at:], data)
	batch.Batch(out).SetCRC()
	return out
}

func TestValidateRefuses(t *testing.T) {
	b := newBench(t, nil, nil)
	plain := b.make(spec{n: 5, size: 10})
	gzip := b.make(spec{n: 5, size: 2000, codec: compress.Gzip})
	zstd := b.make(spec{n: 5, size: 10, codec: compress.Zstd})
	pid := b.make(spec{n: 1, producer: &batch.Producer{ID: 4, Sequence: -1}})
	broken := bytes.Clone(plain)
	broken[70] ^= 1
	overlong := put(plain, 61, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	cases := []struct {
		name    string
		raw     []byte
		change  func(c *Config)
		version int16
		want    *kerr.Error
		records []int32
	}{
		{"empty", nil, nil, 9, kerr.InvalidRecord, nil},
		{"cut short", plain[:len(plain)-1], nil, 9, kerr.InvalidRecord, nil},
		{"two batches", append(bytes.Clone(plain), plain...), nil, 9, kerr.InvalidRecord, nil},
		{"wrong checksum", broken, nil, 9, kerr.CorruptMessage, nil},
		{"magic 0", put(plain, 16, 0), nil, 9, kerr.InvalidRecord, nil},
		{"magic 1", put(plain, 16, 1), nil, 9, kerr.InvalidRecord, nil},
		{"magic 3", put(plain, 16, 3), nil, 9, kerr.CorruptMessage, nil},
		{"base offset 7", put(plain, 7, 7), nil, 9, kerr.InvalidRecord, nil},
		{"count 4 of 5", put(plain, 60, 4), nil, 9, kerr.InvalidRecord, nil},
		{"count and delta say 4, there are 5", put(put(plain, 60, 4), 26, 3), nil, 9, kerr.InvalidRecord, nil},
		{"count and delta say 6, there are 5", put(put(plain, 60, 6), 26, 5), nil, 9, kerr.InvalidRecord, nil},
		{"last offset delta 9", put(plain, 26, 9), nil, 9, kerr.InvalidRecord, nil},
		{"count 0", put(plain, 60, 0), nil, 9, kerr.InvalidRecord, nil},
		{"negative count", put(plain, 57, 0xff), nil, 9, kerr.InvalidRecord, nil},
		{"control bit", put(plain, 22, 0x20), nil, 9, kerr.InvalidRecord, nil},
		{"producer without a sequence", pid, nil, 9, kerr.InvalidRecord, nil},
		{"unknown codec", put(plain, 22, 5), nil, 9, kerr.UnknownServerError, nil},
		{"gzip bit over plain bytes", put(plain, 22, 1), nil, 9, kerr.UnknownServerError, nil},
		{"zstd before Produce v7", zstd, nil, 6, kerr.UnsupportedCompressionType, nil},
		{"negative record length", put(plain, 61, 0x01), nil, 9, kerr.InvalidRecord, nil},
		{"over-long varint", overlong, nil, 9, kerr.InvalidRecord, nil},
		{"too large", plain, func(c *Config) { c.MaxMessageBytes = len(plain) - 1 }, 9, kerr.MessageTooLarge, nil},
		{"larger than a segment", plain, func(c *Config) { c.SegmentBytes = int64(len(plain)) - 1 }, 9, kerr.RecordListTooLarge, nil},
		{"inflates too far", gzip, func(c *Config) { c.MaxDecompressedBytes = 9000 }, 9, kerr.InvalidRecord, nil},
		{"keyless on a compacted topic", plain, func(c *Config) { c.Compact = true }, 9, kerr.InvalidRecord, []int32{0, 1, 2, 3, 4}},
		{"too old", plain, func(c *Config) { c.TimestampBeforeMax = -2 * time.Millisecond }, 9, kerr.InvalidTimestamp, []int32{0, 1}},
		{"in the future", plain, func(c *Config) { c.TimestampAfterMax = 2 * time.Millisecond }, 9, kerr.InvalidTimestamp, []int32{3, 4}},
		{"LogAppendTime bit on a LogAppendTime topic", put(plain, 22, 8), func(c *Config) { c.LogAppendTime = true }, 9, kerr.InvalidTimestamp, []int32{0, 1, 2, 3, 4}},
		{"grows beyond the limit by recompression", gzip, func(c *Config) {
			c.Compression = compress.Target{Fixed: true}
			c.MaxMessageBytes = 2000
		}, 9, kerr.MessageTooLarge, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			config := *DefaultConfig()
			if c.change != nil {
				c.change(&config)
			}
			before := bytes.Clone(c.raw)
			_, err := Validate(c.raw, ValidateOptions{Config: &config, Now: epochZero, ProduceVersion: c.version, Codecs: b.codecs})
			var v *ValidationError
			if !errors.As(err, &v) || v.Code != c.want {
				t.Fatalf("error %v, want %v", err, c.want)
			}
			var records []int32
			for _, r := range v.Records {
				records = append(records, r.Index)
			}
			if !slices.Equal(records, c.records) {
				t.Fatalf("record errors for %v, want %v", records, c.records)
			}
			if !bytes.Equal(before, c.raw) {
				t.Fatal("a refused batch was changed")
			}
		})
	}
}

func TestOneKeylessRecordIsNamed(t *testing.T) {
	b := newBench(t, nil, func(c *Config) { c.Compact = true })
	bl := batch.NewBuilder(batch.Spec{LeaderEpoch: -1})
	for i := range 10 {
		r := batch.NewRecord{Timestamp: epochZero.UnixMilli(), Key: []byte("k")}
		if i == 6 {
			r.Key = nil
		}
		bl.Add(r)
	}
	raw, _, err := bl.Build(nil, nil)
	b.must(err)
	_, err = Validate(raw, ValidateOptions{Config: &b.config, Now: epochZero, ProduceVersion: 9, Codecs: b.codecs})
	var v *ValidationError
	if !errors.As(err, &v) || v.Code != kerr.InvalidRecord || len(v.Records) != 1 || v.Records[0].Index != 6 {
		t.Fatalf("error %+v", err)
	}
}

func TestValidateForms(t *testing.T) {
	b := newBench(t, nil, nil)
	plain := b.make(spec{n: 3, size: 300, producer: &batch.Producer{ID: 4, Epoch: 2, Sequence: 9}})
	now := epochZero.Add(time.Minute)
	validate := func(t *testing.T, raw []byte, change func(c *Config)) *Validated {
		config := *DefaultConfig()
		change(&config)
		v, err := Validate(bytes.Clone(raw), ValidateOptions{Config: &config, Now: now, ProduceVersion: 9, Codecs: b.codecs})
		b.must(err)
		b.must(v.Batch.CheckCRC())
		return v
	}
	t.Run("stored as sent", func(t *testing.T) {
		v := validate(t, plain, func(*Config) {})
		if !bytes.Equal(v.Batch, plain) || v.Rebuilt || v.LogAppendTime != -1 {
			t.Fatalf("changed: rebuilt %v", v.Rebuilt)
		}
	})
	t.Run("log append time", func(t *testing.T) {
		v := validate(t, plain, func(c *Config) { c.LogAppendTime = true })
		if v.Rebuilt || !v.Batch.LogAppendTime() || v.Batch.MaxTimestamp() != now.UnixMilli() || v.LogAppendTime != now.UnixMilli() {
			t.Fatalf("max timestamp %d", v.Batch.MaxTimestamp())
		}
		if !bytes.Equal(v.Batch.Payload(), plain[batch.HeaderSize:]) {
			t.Fatal("records changed")
		}
	})
	t.Run("wrong max timestamp is corrected", func(t *testing.T) {
		raw := bytes.Clone(plain)
		binary.BigEndian.PutUint64(raw[35:], 1)
		batch.Batch(raw).SetCRC()
		if v := validate(t, raw, func(*Config) {}); !bytes.Equal(v.Batch, plain) {
			t.Fatalf("max timestamp %d", v.Batch.MaxTimestamp())
		}
	})
	for _, codec := range []compress.Type{compress.Gzip, compress.Snappy, compress.Lz4, compress.Zstd} {
		t.Run("to "+codec.String()+" and back", func(t *testing.T) {
			v := validate(t, plain, func(c *Config) { c.Compression = compress.Target{Fixed: true, Type: codec, Level: 3} })
			if !v.Rebuilt || v.Batch.Codec() != codec || v.Batch.ProducerID() != 4 || v.Batch.BaseSequence() != 9 || v.Batch.Count() != 3 {
				t.Fatalf("codec %s", v.Batch.Codec())
			}
			back := validate(t, v.Batch, func(c *Config) { c.Compression = compress.Target{Fixed: true} })
			if !bytes.Equal(back.Batch, plain) {
				t.Fatal("not the same after both ways")
			}
		})
	}
	t.Run("gaps in the offset deltas", func(t *testing.T) {
		bl := batch.NewBuilder(batch.Spec{LeaderEpoch: -1, Codec: compress.Gzip, Level: -1})
		bl.AddAt(0, batch.NewRecord{Timestamp: 5, Value: []byte("x")})
		bl.AddAt(2, batch.NewRecord{Timestamp: 5, Value: []byte("y")})
		raw, _, err := bl.Build(nil, b.codecs)
		b.must(err)
		v := validate(t, put(raw, 26, 1), func(*Config) {})
		payload, err := v.Batch.Records(b.codecs, nil, 1000)
		b.must(err)
		it := batch.Iterate(payload, 2)
		for i := int32(0); it.Next(); i++ {
			if it.Record.OffsetDelta != i {
				t.Fatalf("delta %d of record %d", it.Record.OffsetDelta, i)
			}
		}
		b.must(it.Err())
	})
}

func FuzzValidate(f *testing.F) {
	b := newBench(f, nil, nil)
	for codec := compress.None; codec <= compress.Zstd; codec++ {
		f.Add(b.make(spec{n: 3, size: 50, codec: codec, producer: &batch.Producer{ID: 1}}))
	}
	config := *DefaultConfig()
	config.MaxDecompressedBytes = 1 << 20
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.Clone(raw)
		if x, _, err := batch.Next(raw); err == nil {
			x.SetCRC() // so that the fuzzer gets beyond it
		}
		v, err := Validate(raw, ValidateOptions{Config: &config, Now: epochZero, ProduceVersion: 9, Codecs: b.codecs})
		if err == nil {
			if err := v.Batch.CheckCRC(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
