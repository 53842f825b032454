package config

import (
	"errors"
	"math"
	"testing"
	"time"
)

// Every message here is what Kafka 4.4.0 answers for the same value.
func TestValidateTopicMessages(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{"retention.ms", " 5 ", ""},
		{"retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"},
		{"retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"},
		{"retention.ms", "+5", ""},
		{"retention.ms", "9223372036854775808", "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG"},
		{"segment.bytes", "14", "Invalid value 14 for configuration segment.bytes: Value must be at least 1048576"},
		{"segment.bytes", "2147483648", "Invalid value 2147483648 for configuration segment.bytes: Not a number of type INT"},
		{"compression.type", "zip", "Invalid value zip for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.type", "GZIP", "Invalid value GZIP for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"},
		{"compression.type", " gzip ", ""},
		{"compression.gzip.level", "0", "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{"compression.gzip.level", "10", "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1"},
		{"compression.lz4.level", "0", "Invalid value 0 for configuration compression.lz4.level: Value must be at least 1"},
		{"compression.lz4.level", "18", "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17"},
		{"compression.zstd.level", "-131073", "Invalid value -131073 for configuration compression.zstd.level: Value must be at least -131072"},
		{"cleanup.policy", "", ""},
		{"cleanup.policy", "compact , delete", ""},
		{"cleanup.policy", "delete,delete", ""},
		{"cleanup.policy", "foo", "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"},
		{"cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."},
		{"cleanup.policy", "COMPACT", "Invalid value COMPACT for configuration cleanup.policy: String must be one of: compact, delete"},
		{"min.cleanable.dirty.ratio", "1.5", "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"},
		{"min.cleanable.dirty.ratio", "-0.1", "Invalid value -0.1 for configuration min.cleanable.dirty.ratio: Value must be at least 0"},
		{"min.cleanable.dirty.ratio", "x", "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE"},
		{"min.cleanable.dirty.ratio", "0.5f", ""},
		{"min.cleanable.dirty.ratio", "NaN", ""},
		{"min.cleanable.dirty.ratio", "1e-1", ""},
		{"preallocate", "yes", "Invalid value yes for configuration preallocate: Expected value to be either true or false"},
		{"preallocate", " FALSE ", ""},
		{"preallocate", "", "Invalid value  for configuration preallocate: Expected value to be either true or false"},
		{"min.insync.replicas", "0", "Invalid value 0 for configuration min.insync.replicas: Value must be at least 1"},
		{"min.insync.replicas", "1 2", "Invalid value 1 2 for configuration min.insync.replicas: Not a number of type INT"},
		{"max.decompressed.message.bytes", "2147483647", "Invalid value 2147483647 for configuration max.decompressed.message.bytes: Value must be no more than 2147483639"},
		{"message.timestamp.type", "createtime", "Invalid value createtime for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
		{"leader.replication.throttled.replicas", "*,0:1", "Invalid value [*, 0:1] for configuration leader.replication.throttled.replicas: leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
		{"nope", "1", "Unknown topic config name: nope"},
		{"message.format.version", "3.0", "Unknown topic config name: message.format.version"},
		{"internal.segment.bytes", "5", ""},
		{"retention.bytes", "-5", ""},
		{"retention.bytes", "1_000", "Invalid value 1_000 for configuration retention.bytes: Not a number of type LONG"},
		{"max.message.bytes", "1.0", "Invalid value 1.0 for configuration max.message.bytes: Not a number of type INT"},
		{"max.message.bytes", "0x10", "Invalid value 0x10 for configuration max.message.bytes: Not a number of type INT"},
		{"segment.ms", "0", "Invalid value 0 for configuration segment.ms: Value must be at least 1"},
	}
	cfg := Default("/data")
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			err := ValidateTopic(cfg, Dynamic{}, map[string]string{tt.name: tt.value})
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("\n got %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestValidateTopicAcrossSettings(t *testing.T) {
	cfg := Default("/data")
	err := ValidateTopic(cfg, Dynamic{}, map[string]string{"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
	if want := "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = ValidateTopic(cfg, Dynamic{}, map[string]string{"nope": "1", "retention.ms": "x"})
	if _, ok := errors.AsType[*UnknownTopicConfigError](err); !ok {
		t.Errorf("names come before values: got %v", err)
	}
}

// A known config that is not enforced takes its default in any spelling, and refuses the rest by name.
func TestValidateTopicDefaultOnly(t *testing.T) {
	cfg := Default("/data")
	for _, def := range TopicDefs() {
		if def.Status != DefaultOnly {
			continue
		}
		if err := ValidateTopic(cfg, Dynamic{}, map[string]string{def.Name: " " + def.Default + " "}); err != nil {
			t.Errorf("%s refuses its default: %v", def.Name, err)
		}
	}
	err := ValidateTopic(cfg, Dynamic{}, map[string]string{"remote.storage.enable": "true"})
	e, ok := errors.AsType[*NotEnforcedError](err)
	if !ok || e.Name != "remote.storage.enable" {
		t.Errorf("got %v, want *NotEnforcedError", err)
	}
}

func TestEffectiveTopicLayers(t *testing.T) {
	cfg := Default("/data")
	topic := EffectiveTopic(cfg, Dynamic{}, nil)
	if topic.RetentionAge != 7*24*time.Hour || topic.FlushInterval != math.MaxInt64 || !topic.Delete || topic.Compact || topic.SegmentBytes != 1<<30 {
		t.Errorf("defaults: %+v", topic)
	}
	set := func(name, value string) {
		t.Helper()
		var err error
		if cfg, err = cfg.With(name, value); err != nil {
			t.Fatal(err)
		}
	}
	retention := func(dyn Dynamic, own map[string]string) time.Duration {
		return EffectiveTopic(cfg, dyn, own).RetentionAge
	}
	set("log.retention.hours", "2")
	if got := retention(Dynamic{}, nil); got != 2*time.Hour {
		t.Errorf("hours: %v", got)
	}
	set("log.retention.minutes", "3")
	if got := retention(Dynamic{}, nil); got != 3*time.Minute {
		t.Errorf("minutes beat hours: %v", got)
	}
	set("log.retention.ms", "4")
	if got := retention(Dynamic{}, nil); got != 4*time.Millisecond {
		t.Errorf("ms beats minutes: %v", got)
	}
	dyn := Dynamic{Default: map[string]string{"log.retention.ms": "5"}}
	if got := retention(dyn, nil); got != 5*time.Millisecond {
		t.Errorf("altered default: %v", got)
	}
	dyn.Broker = map[string]string{"log.retention.ms": "6"}
	if got := retention(dyn, nil); got != 6*time.Millisecond {
		t.Errorf("altered for the broker: %v", got)
	}
	if got := retention(dyn, map[string]string{"retention.ms": "-1"}); got >= 0 {
		t.Errorf("own config: %v", got)
	}
	own := map[string]string{"cleanup.policy": "compact", "max.compaction.lag.ms": "1000"}
	if got := EffectiveTopic(cfg, Dynamic{}, own); got.SegmentAge != time.Second || got.Delete || !got.Compact {
		t.Errorf("a compacted topic rolls by max.compaction.lag.ms: %+v", got)
	}
}

func TestFormatDouble(t *testing.T) {
	for f, want := range map[float64]string{0.5: "0.5", 1: "1.0", 0: "0.0", 1e7: "1.0E7", 9999999: "9999999.0", 1e-4: "1.0E-4",
		math.MaxFloat64: "1.7976931348623157E308", 0.001: "0.001", math.Inf(1): "Infinity"} {
		if got := formatDouble(f); got != want {
			t.Errorf("%g: got %s, want %s", f, got, want)
		}
	}
}
