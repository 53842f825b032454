package config

import (
	"fmt"
	"slices"
	"time"
)

// Topic is what a partition's log runs with: the topic's own configs over the broker's, in the types that the code
// works with. It is an immutable value.
type Topic struct {
	// Delete and Compact are the two halves of cleanup.policy; with neither everything is kept.
	Delete, Compact bool

	SegmentBytes       int64
	SegmentAge         time.Duration // of a compacted topic at most MaxCompactionLag, as in Kafka
	SegmentJitter      time.Duration
	SegmentIndexBytes  int
	IndexIntervalBytes int
	RetentionAge       time.Duration // < 0: none
	RetentionBytes     int64         // < 0: none
	FileDeleteDelay    time.Duration

	FlushMessages int64
	FlushInterval time.Duration
	// Fsync is FsyncAuto, FsyncAlways or FsyncNever.
	Fsync string

	// Compression is "producer", "uncompressed", "gzip", "snappy", "lz4" or "zstd".
	Compression                    string
	GzipLevel, LZ4Level, ZstdLevel int
	MaxMessageBytes                int
	MaxDecompressedBytes           int64
	LogAppendTime                  bool
	TimestampBeforeMax             time.Duration
	TimestampAfterMax              time.Duration
	MinInSyncReplicas              int
	Preallocate                    bool

	DeleteRetention                    time.Duration
	MinCompactionLag, MaxCompactionLag time.Duration
	MinCleanableRatio                  float64
}

// Dynamic is the altered broker settings that lie over a static Config, as names and texts: those of one broker, and
// the default of all. Either may be nil.
type Dynamic struct {
	Broker, Default map[string]string
}

// sets reports whether either layer sets a name.
func (d Dynamic) sets(name string) bool {
	_, broker := d.Broker[name]
	_, cluster := d.Default[name]
	return broker || cluster
}

// UnknownTopicConfigError says that no topic config has this name.
type UnknownTopicConfigError struct{ Name string }

// Error has Kafka's words.
func (e *UnknownTopicConfigError) Error() string { return "Unknown topic config name: " + e.Name }

// NotEnforcedError says that a topic config is known, and that kaja does not enforce any value but its default yet.
type NotEnforcedError struct{ Name, Value, Default string }

// Error names the setting and the only value that it takes.
func (e *NotEnforcedError) Error() string {
	return fmt.Sprintf("Invalid value %s for configuration %s: kaja does not support it yet, only its default: %q", e.Value, e.Name, e.Default)
}

// ValidateTopic checks a topic's whole set of own configs: names first, then values in the order of their names, then
// the rules across settings. Every error means INVALID_CONFIG; its text is what Kafka answers, except for settings
// that kaja does not enforce yet (*NotEnforcedError).
func ValidateTopic(c *Config, dyn Dynamic, overrides map[string]string) error {
	names := sortedNames(overrides)
	for _, name := range names {
		if _, ok := topics.lookup(name); !ok {
			return &UnknownTopicConfigError{Name: name}
		}
	}
	for _, name := range names {
		def, _ := topics.lookup(name)
		v, err := def.Parse(overrides[name])
		if err != nil {
			return err
		}
		if def.Status == DefaultOnly && !def.isDefault(v) {
			return &NotEnforcedError{Name: name, Value: overrides[name], Default: def.Default}
		}
	}
	t := topicValues{c: c, dyn: dyn, overrides: overrides}
	if lo, hi := t.num("min.compaction.lag.ms"), t.num("max.compaction.lag.ms"); lo > hi {
		return lagConflict(lo, hi)
	}
	return nil
}

// EffectiveTopic is what a topic with these own configs runs with. overrides must have passed ValidateTopic; a value
// that does not parse (written by another version) is passed over for the broker's.
func EffectiveTopic(c *Config, dyn Dynamic, overrides map[string]string) *Topic {
	v := topicValues{c: c, dyn: dyn, overrides: overrides}
	policy := v.value("cleanup.policy").([]string)
	t := &Topic{
		Delete:  slices.Contains(policy, "delete"),
		Compact: slices.Contains(policy, "compact"),

		SegmentBytes:       v.num("segment.bytes"),
		SegmentAge:         millis(v.num("segment.ms")),
		SegmentJitter:      millis(v.num("segment.jitter.ms")),
		SegmentIndexBytes:  int(v.num("segment.index.bytes")),
		IndexIntervalBytes: int(v.num("index.interval.bytes")),
		RetentionAge:       millis(v.num("retention.ms")),
		RetentionBytes:     v.num("retention.bytes"),
		FileDeleteDelay:    millis(v.num("file.delete.delay.ms")),

		FlushMessages: v.num("flush.messages"),
		FlushInterval: millis(v.num("flush.ms")),
		Fsync:         v.value("kaja.fsync").(string),

		Compression:          v.value("compression.type").(string),
		GzipLevel:            int(v.num("compression.gzip.level")),
		LZ4Level:             int(v.num("compression.lz4.level")),
		ZstdLevel:            int(v.num("compression.zstd.level")),
		MaxMessageBytes:      int(v.num("max.message.bytes")),
		MaxDecompressedBytes: v.num("max.decompressed.message.bytes"),
		LogAppendTime:        v.value("message.timestamp.type").(string) == "LogAppendTime",
		TimestampBeforeMax:   millis(v.num("message.timestamp.before.max.ms")),
		TimestampAfterMax:    millis(v.num("message.timestamp.after.max.ms")),
		Preallocate:          v.value("preallocate").(bool),
		MinInSyncReplicas:    int(v.num("min.insync.replicas")),

		DeleteRetention:   millis(v.num("delete.retention.ms")),
		MinCompactionLag:  millis(v.num("min.compaction.lag.ms")),
		MaxCompactionLag:  millis(v.num("max.compaction.lag.ms")),
		MinCleanableRatio: v.value("min.cleanable.dirty.ratio").(float64),
	}
	if n, ok := v.value("internal.segment.bytes").(int64); ok {
		t.SegmentBytes = n
	}
	if t.Compact {
		t.SegmentAge = min(t.SegmentAge, t.MaxCompactionLag)
	}
	return t
}

// topicValues looks a topic's settings up through all layers.
type topicValues struct {
	c         *Config
	dyn       Dynamic
	overrides map[string]string
}

func (t topicValues) num(name string) int64 { return t.value(name).(int64) }

// value is the effective value of a topic config, nil if there is none: the topic's own, else the first of its synonyms
// that is altered for this broker, altered for all, or given at start, else the default.
func (t topicValues) value(name string) any {
	def, ok := topics.lookup(name)
	if !ok {
		panic("BUG: no topic config is called " + name)
	}
	if v := parsed(def, t.overrides); v != nil {
		return v
	}
	for _, syn := range def.Synonyms {
		d := mustDef(syn.Name)
		for _, from := range []map[string]string{t.dyn.Broker, t.dyn.Default} {
			if v := parsed(d, from); v != nil {
				return scaleValue(v, syn.Scale)
			}
		}
		if s, ok := t.c.set[syn.Name]; ok {
			return scaleValue(s.value, syn.Scale)
		}
	}
	return def.defaultValue()
}

// parsed is the value that from has for d, nil if there is none or it does not parse.
func parsed(d *Def, from map[string]string) any {
	text, ok := from[d.Name]
	if !ok {
		return nil
	}
	v, err := d.Parse(text)
	if err != nil {
		return nil
	}
	return v
}
