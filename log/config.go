package log

import (
	"log/slog"
	"time"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
)

// Config is what a topic's configuration asks of one partition's log. It is an immutable value: a change is a new Config
// given to SetConfig.
type Config struct {
	SegmentBytes       int64         // segment.bytes
	SegmentAge         time.Duration // segment.ms (for compacted topics at most max.compaction.lag.ms)
	SegmentJitter      time.Duration // segment.jitter.ms: each segment rolls up to this much earlier
	SegmentIndexBytes  int           // segment.index.bytes; each index file is at most this long
	IndexIntervalBytes int           // index.interval.bytes

	MaxMessageBytes      int   // max.message.bytes: of a whole batch, header included
	MaxDecompressedBytes int64 // max.decompressed.message.bytes: of the records of one batch

	RetentionAge    time.Duration // retention.ms; < 0: none
	RetentionBytes  int64         // retention.bytes; < 0: none
	FileDeleteDelay time.Duration // file.delete.delay.ms

	FlushMessages int64         // flush.messages: flush when so many records are unflushed
	FlushInterval time.Duration // flush.ms: flush when the last flush is so long ago

	Delete  bool // cleanup.policy holds delete
	Compact bool // cleanup.policy holds compact: records need keys

	DeleteRetention   time.Duration // delete.retention.ms: how long compaction keeps tombstones and markers
	MinCompactionLag  time.Duration // min.compaction.lag.ms: a segment with a younger record is not compacted
	MaxCompactionLag  time.Duration // max.compaction.lag.ms: older dirty records are compacted whatever the ratio
	MinCleanableRatio float64       // min.cleanable.dirty.ratio: dirty bytes by all bytes beyond which a log is compacted

	Compression compress.Target // compression.type with its level

	LogAppendTime      bool          // message.timestamp.type
	TimestampBeforeMax time.Duration // message.timestamp.before.max.ms
	TimestampAfterMax  time.Duration // message.timestamp.after.max.ms

	Preallocate bool // preallocate: space for a whole segment is reserved when it is begun

	MinInSyncReplicas    int           // min.insync.replicas; not used by this package
	ProducerIDExpiration time.Duration // producer.id.expiration.ms
}

// Forever is the duration that stands for Kafka's Long.MAX_VALUE milliseconds.
const Forever = time.Duration(1<<63 - 1)

// DefaultConfig is what Kafka 4.4 gives a topic without overrides.
func DefaultConfig() *Config {
	return &Config{
		SegmentBytes: 1 << 30, SegmentAge: 7 * 24 * time.Hour, SegmentIndexBytes: 10 << 20, IndexIntervalBytes: 4096,
		MaxMessageBytes: 1048588, MaxDecompressedBytes: 2147483639,
		RetentionAge: 7 * 24 * time.Hour, RetentionBytes: -1, FileDeleteDelay: time.Minute,
		FlushMessages: 1<<63 - 1, FlushInterval: Forever, Delete: true,
		DeleteRetention: 24 * time.Hour, MaxCompactionLag: Forever, MinCleanableRatio: 0.5,
		TimestampBeforeMax: Forever, TimestampAfterMax: time.Hour,
		MinInSyncReplicas: 1, ProducerIDExpiration: 24 * time.Hour,
	}
}

// Options say where a log lies and what is known about it from the checkpoints of its directory.
type Options struct {
	FS      vfs.FS
	Dir     string // the partition's directory; made if missing
	TP      wire.TopicPartition
	TopicID wire.UUID
	Config  *Config
	// Verified says that the caller has read TopicID from the directory's partition.metadata (ReadTopicID).
	Verified bool

	// RecoveryPoint is the end offset up to which everything was flushed; an unclean start reads what lies above it.
	RecoveryPoint wire.Offset
	// LogStartOffset is the checkpointed start; the log starts at the later of it and the first segment.
	LogStartOffset wire.Offset
	// Clean says that the last stop was a clean one, so nothing needs to be read again.
	Clean bool
	// Changed says that the files are not as the clean stop has left them, which may mean that others were copied in: where
	// they end is looked for in them.
	Changed bool
	// DeferSync leaves what recovery changes to the caller to make durable, for many logs at once: it calls Durable when
	// their file system was synced as a whole, and Flush where that can't be. Until then FlushedOffset is not above the
	// recovery point, and nothing may be appended.
	DeferSync bool

	Wall   func() time.Time // wall clock
	Logger *slog.Logger
	Codecs *compress.Codecs
}

// Recovery tells what Open found and did.
type Recovery struct {
	Unclean           bool
	BytesRead         int64 // of .log files, re-read for recovery
	BytesTruncated    int64 // cut off because no whole valid batch was there
	SegmentsRemoved   int   // after the first damaged one
	IndexesRebuilt    int
	ProducersReplayed bool // the producer state was rebuilt from batches, not only loaded from a snapshot
}
