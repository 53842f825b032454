package broker

import (
	"strconv"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire/compress"
)

// topicConfigs turns what an image says of a topic into what its logs run with.
type topicConfigs struct {
	cfg *config.Config
}

// dynamic is the altered broker settings of an image that lie over the static configuration of this node.
func (t topicConfigs) dynamic(img *image.Image) config.Dynamic {
	return config.Dynamic{
		Broker:  img.Config(image.ResourceBroker, strconv.Itoa(int(t.cfg.NodeID()))),
		Default: img.Config(image.ResourceBroker, ""),
	}
}

func (t topicConfigs) effective(img *image.Image, topic string) *config.Topic {
	return config.EffectiveTopic(t.cfg, t.dynamic(img), img.Config(image.ResourceTopic, topic))
}

// log is the configuration of a topic's logs.
func (t topicConfigs) log(img *image.Image, topic string) *log.Config {
	c := t.effective(img, topic)
	return &log.Config{
		SegmentBytes: c.SegmentBytes, SegmentAge: c.SegmentAge, SegmentJitter: c.SegmentJitter,
		SegmentIndexBytes: c.SegmentIndexBytes, IndexIntervalBytes: c.IndexIntervalBytes,
		MaxMessageBytes: c.MaxMessageBytes, MaxDecompressedBytes: c.MaxDecompressedBytes,
		RetentionAge: c.RetentionAge, RetentionBytes: c.RetentionBytes, FileDeleteDelay: c.FileDeleteDelay,
		FlushMessages: c.FlushMessages, FlushInterval: c.FlushInterval,
		Delete: c.Delete, Compact: c.Compact,
		DeleteRetention: c.DeleteRetention, MinCompactionLag: c.MinCompactionLag, MaxCompactionLag: c.MaxCompactionLag,
		MinCleanableRatio: c.MinCleanableRatio,
		Compression:       target(c),
		LogAppendTime:     c.LogAppendTime, TimestampBeforeMax: c.TimestampBeforeMax, TimestampAfterMax: c.TimestampAfterMax,
		Preallocate:          c.Preallocate,
		MinInSyncReplicas:    c.MinInSyncReplicas,
		ProducerIDExpiration: config.Overlay(t.cfg, t.dynamic(img)).Duration("producer.id.expiration.ms"),
	}
}

// target is compression.type with its level. The configuration was checked when it was accepted; what does not parse was
// written by another version and keeps the producer's codec.
func target(c *config.Topic) compress.Target {
	t, err := compress.ParseTarget(c.Compression, compress.Levels{Gzip: c.GzipLevel, Lz4: c.LZ4Level, Zstd: c.ZstdLevel})
	if err != nil {
		return compress.Target{}
	}
	return t
}

// fsync is kaja.fsync of a topic.
func (t topicConfigs) fsync(img *image.Image, topic string) replica.FSync {
	switch t.effective(img, topic).Fsync {
	case config.FsyncAlways:
		return replica.FSyncAlways
	case config.FsyncNever:
		return replica.FSyncNever
	}
	return replica.FSyncAuto
}

// cleaner is what this node's cleaner runs with.
func (t topicConfigs) cleaner(img *image.Image) replica.CleanerConfig {
	c := config.EffectiveCleaner(t.cfg, t.dynamic(img))
	return replica.CleanerConfig{
		Threads: c.Threads, MapBytes: c.DedupeBufferBytes, MapLoad: c.BufferLoad, BufferBytes: c.IOBufferBytes,
		BytesPerSecond: c.BytesPerSecond, Backoff: c.Backoff,
	}
}

// moves is what moves of replicas between this node's log directories run with.
func (t topicConfigs) moves(img *image.Image) replica.MoveConfig {
	c := replica.MoveConfig{Threads: t.cfg.Int("num.replica.alter.log.dirs.threads"), BytesPerSecond: -1}
	if rate, bounded := config.EffectiveMoveRate(t.dynamic(img)); bounded {
		c.BytesPerSecond = rate
	}
	return c
}
