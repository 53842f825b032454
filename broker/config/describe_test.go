package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// line writes an entry as name=value source [synonym=value/source …].
func line(e Entry) string {
	value := func(s *string) string {
		if s == nil {
			return "<null>"
		}
		return *s
	}
	var syn []string
	for _, s := range e.Synonyms {
		syn = append(syn, fmt.Sprintf("%s=%s/%d", s.Name, value(s.Value), s.Source))
	}
	ro := ""
	if e.ReadOnly {
		ro = " read-only"
	}
	return fmt.Sprintf("%s=%s %d%s [%s]", e.Def.Name, value(e.Value), e.Source, ro, strings.Join(syn, " "))
}

func find(t *testing.T, entries []Entry, name string) string {
	t.Helper()
	i := slices.IndexFunc(entries, func(e Entry) bool { return e.Def.Name == name })
	if i < 0 {
		t.Fatalf("%s is not described", name)
	}
	return line(entries[i])
}

// What Kafka 4.4.0 answers for a topic with retention.ms=5000 and compression.type=" gzip " on a new cluster.
func TestDescribeTopicAsKafka(t *testing.T) {
	dyn := Dynamic{Default: map[string]string{"min.insync.replicas": "1"}}
	got := DescribeTopic(Default("/d"), dyn, map[string]string{"retention.ms": "5000", "compression.type": " gzip "})
	for _, want := range []string{
		"retention.ms=5000 1 [retention.ms=5000/1]",
		"compression.type=gzip 1 [compression.type=gzip/1 compression.type=producer/5]",
		"min.insync.replicas=1 3 [min.insync.replicas=1/3 min.insync.replicas=1/5]",
		"segment.ms=604800000 5 []",
		"flush.ms=9223372036854775807 5 []",
		"segment.jitter.ms=0 5 []",
		"flush.messages=9223372036854775807 5 [log.flush.interval.messages=9223372036854775807/5]",
		"max.message.bytes=1048588 5 [message.max.bytes=1048588/5]",
		"min.cleanable.dirty.ratio=0.5 5 [log.cleaner.min.cleanable.ratio=0.5/5]",
		"leader.replication.throttled.replicas= 5 []",
	} {
		name, _, _ := strings.Cut(want, "=")
		if line := find(t, got, name); line != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
	}
}

func namesOf(entries []Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Def.Name)
	}
	return out
}

// Kafka's tools print configs in the order of the answer, so it is Kafka's, and what Kafka does not have is listed only when
// it is set on the resource or asked for by name.
func TestDescribeOrder(t *testing.T) {
	topic := strings.Fields(topicOrder)[1:] // the first is hidden
	broker := strings.Fields(brokerOrder)
	c := Default("/d")
	all := Dynamic{Default: map[string]string{
		"log.retention.ms": "1", "log.segment.bytes": "10000000", "message.max.bytes": "1000000", "log.cleanup.policy": "compact",
		"compression.type": "gzip", "log.flush.interval.ms": "5000", "log.index.interval.bytes": "5000", "log.roll.ms": "10000000",
		"log.preallocate": "false", "log.cleaner.min.cleanable.ratio": "0.4", "min.insync.replicas": "1",
	}}
	defaults := strings.Fields(`compression.type log.segment.bytes log.retention.ms message.max.bytes log.flush.interval.ms log.cleanup.policy
		min.insync.replicas log.roll.ms log.preallocate log.index.interval.bytes log.cleaner.min.cleanable.ratio`)
	twelve := Dynamic{Default: maps.Clone(all.Default)}
	twelve.Default["log.segment.delete.delay.ms"] = "1000"
	for _, tt := range []struct {
		name string
		got  []Entry
		want []string
	}{
		{"topic", DescribeTopic(c, Dynamic{}, nil), topic},
		{"topic with overrides", DescribeTopic(c, Dynamic{}, map[string]string{"segment.ms": "1", "flush.ms": "2"}), topic},
		{"topic with kaja.fsync of the broker", DescribeTopic(c, Dynamic{Default: map[string]string{"kaja.fsync": "always"}}, nil), topic},
		{"topic with kaja.fsync", DescribeTopic(c, Dynamic{}, map[string]string{"kaja.fsync": "always"}), append(slices.Clone(topic), "kaja.fsync")},
		{"topic with a hidden setting", DescribeTopic(c, Dynamic{}, map[string]string{"internal.segment.bytes": "9"}),
			append([]string{"internal.segment.bytes"}, topic...)},
		{"topic, by name", DescribeTopic(c, Dynamic{}, nil, "segment.ms", "kaja.fsync", "internal.segment.bytes", "retention.ms", "no.such"),
			[]string{"retention.ms", "segment.ms", "kaja.fsync"}},
		{"broker", DescribeBroker(c, Dynamic{}), broker},
		{"broker with kaja.fsync", DescribeBroker(c, Dynamic{Broker: map[string]string{"kaja.fsync": "always"}}), append(slices.Clone(broker), "kaja.fsync")},
		{"broker, by name", DescribeBroker(c, Dynamic{}, "kaja.fsync", "num.partitions", "node.id"), []string{"node.id", "num.partitions", "kaja.fsync"}},
		{"eleven defaults", DescribeBrokerDefaults(all), defaults},
		{"twelve defaults", DescribeBrokerDefaults(twelve), strings.Fields(`compression.type log.retention.ms message.max.bytes log.flush.interval.ms
			min.insync.replicas log.roll.ms log.index.interval.bytes log.cleaner.min.cleanable.ratio log.segment.bytes log.cleanup.policy
			log.segment.delete.delay.ms log.preallocate`)},
		{"defaults, by name", DescribeBrokerDefaults(all, "log.roll.ms", "compression.type"), []string{"compression.type", "log.roll.ms"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, namesOf(tt.got)); diff != "" {
				t.Errorf("(-Kafka +kaja)\n%s", diff)
			}
		})
	}
}

func TestDescribeTopicUnderOtherNames(t *testing.T) {
	c, _ := load(t, Sources{File: []byte("log.retention.hours=1\nlog.roll.ms=5\nlog.roll.hours=7\nmessage.max.bytes=9")})
	got := DescribeTopic(c, Dynamic{Broker: map[string]string{"message.max.bytes": "10"}}, nil)
	for _, want := range []string{
		"retention.ms=3600000 5 []",
		"segment.ms=5 4 [log.roll.ms=5/4 log.roll.hours=7/4 log.roll.hours=168/5]",
		"max.message.bytes=10 2 [message.max.bytes=10/2 message.max.bytes=9/4 message.max.bytes=1048588/5]",
	} {
		name, _, _ := strings.Cut(want, "=")
		if line := find(t, got, name); line != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
	}
}

func TestDescribeBroker(t *testing.T) {
	c, _ := load(t, Sources{File: []byte("node.id=1\nlog.dirs=/x\noffsets.topic.replication.factor=1\nnum.io.threads=9\nlog.retention.hours=1")})
	dyn := Dynamic{Default: map[string]string{"min.insync.replicas": "1", "own.name": "x"}}
	got := DescribeBroker(c, dyn)
	for _, want := range []string{
		"min.insync.replicas=1 3 [min.insync.replicas=1/3 min.insync.replicas=1/5]",
		"broker.id=1 4 read-only [broker.id=1/4 broker.id=-1/5]",
		"offsets.topic.replication.factor=1 4 read-only [offsets.topic.replication.factor=1/4 offsets.topic.replication.factor=3/5]",
		"num.io.threads=8 5 [num.io.threads=8/5]", // given, without effect, so not shown
		"log.retention.ms=<null> 5 []",
		"log.retention.hours=1 4 read-only [log.retention.hours=1/4 log.retention.hours=168/5]",
		"ssl.key.password=<null> 5 []",
		"node.id=1 4 read-only [node.id=1/4 node.id=1/5]",
		"log.dirs=/x 4 read-only [log.dirs=/x/4]",
	} {
		name, _, _ := strings.Cut(want, "=")
		if line := find(t, got, name); line != want {
			t.Errorf("got  %s\nwant %s", line, want)
		}
	}
	for _, e := range got {
		if e.Def.Hidden {
			t.Errorf("%s is hidden, and described", e.Def.Name)
		}
	}
}

// What Kafka 4.4.0 answers for names that it does not know either: they are listed, without a value, as read-only secrets.
func TestDescribeUnknownNames(t *testing.T) {
	c, _ := load(t, Sources{File: []byte("node.id=1\nlog.dirs=/x\nown.static=7\na=hello\nlistener.name.x.y=1")})
	dyn := Dynamic{
		Default: map[string]string{
			"log.retention.ms": "777777", "a": "v", "no.such.name": "1", "kaja.other": "v", "own.alpha": "v", "zz.top": "v",
			"min.insync.replicas": "1", "log.roll.ms": "10000000", "own.zeta": "v",
		},
		Broker: map[string]string{"own.alpha": "v", "per.broker": "v", "leader.replication.throttled.rate": "9223372036854775807"},
	}
	lines := func(entries []Entry) (out []string) {
		for _, e := range entries {
			if e.Def.Type == untyped {
				if !e.Def.Sensitive() || e.Def.Documented() {
					t.Errorf("%s is shown, or documented", e.Def.Name)
				}
				out = append(out, line(e))
			}
		}
		return out
	}
	for _, tt := range []struct {
		name string
		got  []string
		want []string
	}{
		{"defaults", namesOf(DescribeBrokerDefaults(dyn)), strings.Fields(`log.retention.ms a no.such.name kaja.other own.alpha zz.top
			min.insync.replicas log.roll.ms own.zeta`)},
		{"defaults, by name", lines(DescribeBrokerDefaults(dyn, "own.alpha", "log.roll.ms", "nothere")), []string{"own.alpha=<null> 3 read-only [own.alpha=<null>/3]"}},
		{"broker", lines(DescribeBroker(c, dyn)), []string{
			"a=<null> 3 read-only [a=<null>/3 a=<null>/4]",
			"kaja.other=<null> 3 read-only [kaja.other=<null>/3]",
			"listener.name.x.y=<null> 4 read-only [listener.name.x.y=<null>/4]",
			"no.such.name=<null> 3 read-only [no.such.name=<null>/3]",
			"own.alpha=<null> 2 read-only [own.alpha=<null>/2 own.alpha=<null>/3]",
			"own.static=<null> 4 read-only [own.static=<null>/4]",
			"own.zeta=<null> 3 read-only [own.zeta=<null>/3]",
			"per.broker=<null> 2 read-only [per.broker=<null>/2]",
			"zz.top=<null> 3 read-only [zz.top=<null>/3]",
		}},
		{"broker, by name", namesOf(DescribeBroker(c, dyn, "own.alpha", "log.roll.ms", "nothere", "per.broker")), []string{"own.alpha", "per.broker", "log.roll.ms"}},
		{"rate, by name", []string{find(t, DescribeBroker(c, dyn), "leader.replication.throttled.rate")},
			[]string{"leader.replication.throttled.rate=9223372036854775807 2 [leader.replication.throttled.rate=9223372036854775807/2]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("(-Kafka +kaja)\n%s", diff)
			}
		})
	}
}

// Messages are those of Kafka 4.4.0, except for those that say what kaja can't change yet.
func TestValidateBroker(t *testing.T) {
	tests := []struct {
		name, value string
		perBroker   bool
		want        string
	}{
		{"log.retention.ms", "100", true, ""},
		{"log.retention.ms", "100", false, ""},
		{"log.retention.ms", "x", true, "Invalid value x for configuration log.retention.ms: Not a number of type LONG"},
		{"log.retention.ms", "0", true, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"},
		{"log.retention.hours", "100", false, "Cannot update these configs dynamically: [log.retention.hours]"},
		{"num.partitions", "3", true, "Cannot update these configs dynamically: [num.partitions]"},
		{"own.name", "3", false, ""},
		{"listeners", "PLAINTEXT://:1", false, "Cannot update these configs at default cluster level, broker id must be specified: [listeners]"},
		{"ssl.keystore.location", "/x", true, "These security configs can be dynamically updated only per-listener using the listener prefix: [ssl.keystore.location]"},
		{"listener.name.internal.ssl.keystore.location", "/x", true, "Invalid value [hidden] for configuration listener.name.internal.ssl.keystore.location: kaja can't change it while it runs yet"},
		{"listener.name.internal.ssl.keystore.location", "/x", false, "Invalid value [hidden] for configuration listener.name.internal.ssl.keystore.location: kaja can't change it while it runs yet"},
		{"listener.name.internal.ssl.engine.own", "x", true, "Invalid value [hidden] for configuration listener.name.internal.ssl.engine.own: kaja can't change it while it runs yet"},
		{"listener.name.external.max.connections", "3", true, "Invalid value [hidden] for configuration listener.name.external.max.connections: kaja can't change it while it runs yet"},
		{"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config", "x", true, "Invalid value [hidden] for configuration listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config: kaja can't change it while it runs yet"},
		{"listener.name.internal.own.name", "x", true, ""},
		{"listener.name.internal", "x", true, ""},
		{"log.message.timestamp.type", "zz", true, "Invalid value zz for configuration log.message.timestamp.type: String must be one of: CreateTime, LogAppendTime"},
		{"num.io.threads", "8", true, ""},
		{"num.io.threads", "10", true, "Invalid value 10 for configuration num.io.threads: kaja can't change it while it runs yet"},
		{"leader.replication.throttled.rate", "10", true, "Invalid value 10 for configuration leader.replication.throttled.rate: kaja can't change it while it runs yet"},
		{"log.cleaner.min.compaction.lag.ms", "9223372036854775807", true, ""},
		{"kaja.fsync", "always", false, ""},
		{"log.cleaner.threads", "0", true, "Log cleaner threads should be at least 1"},
		{"log.cleaner.threads", "2", false, ""},
		{"log.cleaner.threads", "3", false, "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be increased to more than double the current value 1 for configuration Invalid dynamic configuration"},
		{"unclean.leader.election.enable", "true", false, ""},
		{"log.preallocate", "true", false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			set := map[string]string{tt.name: tt.value}
			dyn := Dynamic{Default: set}
			if tt.perBroker {
				dyn = Dynamic{Broker: set}
			}
			got := ""
			if err := ValidateBroker(Default("/d"), Dynamic{}, dyn, tt.perBroker, false, []string{tt.name}); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("\n got %q\nwant %q", got, tt.want)
			}
		})
	}
	dyn := Dynamic{Default: map[string]string{"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"}}
	if err := ValidateBroker(Default("/d"), Dynamic{}, dyn, false, false, []string{"log.cleaner.max.compaction.lag.ms"}); err == nil {
		t.Error("lags that contradict each other are accepted")
	}
}

// The number of cleaner threads changes by half and by double, whichever level sets it or stops setting it (Kafka 4.4).
func TestValidateCleanerThreads(t *testing.T) {
	set := func(n string) map[string]string { return map[string]string{"log.cleaner.threads": n} }
	const less, more = "reduced to less than half", "increased to more than double"
	refusal := func(what, now string) string {
		return "Invalid value org.apache.kafka.common.config.ConfigException: Log cleaner threads cannot be " + what + " the current value " + now +
			" for configuration Invalid dynamic configuration"
	}
	for _, tt := range []struct {
		name    string
		was, is Dynamic
		want    string
	}{
		{"double", Dynamic{Default: set("4")}, Dynamic{Default: set("8")}, ""},
		{"more than double", Dynamic{Default: set("4")}, Dynamic{Default: set("9")}, refusal(more, "4")},
		{"half", Dynamic{Broker: set("5")}, Dynamic{Broker: set("2")}, ""},
		{"less than half", Dynamic{Broker: set("6")}, Dynamic{Broker: set("2")}, refusal(less, "6")},
		{"removed", Dynamic{Broker: set("2")}, Dynamic{}, ""},
		{"removed, less than half", Dynamic{Broker: set("4")}, Dynamic{}, refusal(less, "4")},
		{"the default below a broker's own", Dynamic{Broker: set("4"), Default: set("2")}, Dynamic{Broker: set("4"), Default: set("40")}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if err := ValidateBroker(Default("/d"), tt.was, tt.is, true, false, nil); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("\n got %q\nwant %q", got, tt.want)
			}
		})
	}
}

// The number in another broker's file is not known: what is compared with it is accepted, the rest is checked as ever.
func TestValidateCleanerThreadsElsewhere(t *testing.T) {
	set := func(n string) map[string]string { return map[string]string{"log.cleaner.threads": n} }
	off, _ := load(t, Sources{File: []byte("node.id=1\nlog.dirs=/x\nlog.cleaner.enable=false")})
	for _, tt := range []struct {
		name    string
		c       *Config
		was, is Dynamic
		refused bool
	}{
		{"first", Default("/d"), Dynamic{}, Dynamic{Broker: set("16")}, false},
		{"first, no cleaner here", off, Dynamic{}, Dynamic{Broker: set("16")}, false},
		{"removed", Default("/d"), Dynamic{Broker: set("16")}, Dynamic{}, false},
		{"none", Default("/d"), Dynamic{}, Dynamic{Broker: set("0")}, true},
		{"more than double", Default("/d"), Dynamic{Broker: set("4")}, Dynamic{Broker: set("9")}, true},
		{"more than double the default", Default("/d"), Dynamic{Default: set("4")}, Dynamic{Default: set("4"), Broker: set("9")}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := ValidateBroker(tt.c, tt.was, tt.is, true, true, slices.Collect(maps.Keys(tt.is.Broker))); (err != nil) != tt.refused {
				t.Error(err)
			}
		})
	}
}

func TestListDefaultAndTopicValue(t *testing.T) {
	type row struct {
		Def  string
		List bool
	}
	got := map[string]row{}
	for _, name := range []string{"cleanup.policy", "retention.ms", "nope"} {
		d, l := ListDefault(true, name)
		got[name] = row{d, l}
	}
	want := map[string]row{"cleanup.policy": {"delete", true}, "retention.ms": {}, "nope": {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if d, l := ListDefault(false, "log.cleanup.policy"); d != "delete" || !l {
		t.Error("log.cleanup.policy is a list")
	}
	if v := TopicValue(Default("/d"), Dynamic{}, map[string]string{"segment.ms": " 7 "}, "segment.ms"); v != "7" {
		t.Errorf("segment.ms: %q", v)
	}
}
