package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// moveRateName is the setting that EffectiveMoveRate reads.
const moveRateName = "replica.alter.log.dirs.io.max.bytes.per.second"

// dynamicOnly is broker settings that exist only as altered ones, never in a file.
var dynamicOnly = newTable([]Def{
	{Name: "follower.replication.throttled.rate", Type: Long, Default: maxLong, Valid: atLeast(0), Scope: PerBroker, Status: DefaultOnly,
		Doc: "Bytes per second that throttled followers may fetch."},
	{Name: "leader.replication.throttled.rate", Type: Long, Default: maxLong, Valid: atLeast(0), Scope: PerBroker, Status: DefaultOnly,
		Doc: "Bytes per second that leaders may send to throttled followers."},
	{Name: moveRateName, Type: Long, Default: maxLong, Valid: atLeast(0), Scope: PerBroker, Status: Enforced,
		Doc: "Bytes per second that moves between log directories may copy."},
})

// EffectiveMoveRate is how many bytes a second moves between log directories may copy under some altered settings; false:
// any number.
func EffectiveMoveRate(dyn Dynamic) (int64, bool) {
	def, _ := dynamicOnly.lookup(moveRateName)
	for _, layer := range []map[string]string{dyn.Broker, dyn.Default} {
		if rate, ok := parsed(def, layer).(int64); ok {
			return rate, rate < math.MaxInt64
		}
	}
	return 0, false
}

// ValidateBroker checks what a request sets on one broker (perBroker) or on all. was is the altered settings in force, dyn
// as they would be after it, changed the names that it sets. Every error means INVALID_REQUEST; the text is Kafka's, except for
// settings whose change kaja does not enforce yet. A name that nobody knows is accepted, as by Kafka. elsewhere says that the
// broker is another one, with a file of its own.
func ValidateBroker(c *Config, was, dyn Dynamic, perBroker, elsewhere bool, changed []string) error {
	names := slices.Sorted(slices.Values(changed))
	pick := func(want func(*Def) bool) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			def, ok := alterable(n)
			return !ok || !want(def)
		})
	}
	if bad := pick(func(d *Def) bool { return d.Scope == ReadOnly }); len(bad) > 0 {
		return fmt.Errorf("Cannot update these configs dynamically: [%s]", strings.Join(bad, ", ")) //nolint:staticcheck // Kafka's words
	}
	if bad := pick(func(d *Def) bool { return strings.HasPrefix(d.Name, "ssl.") }); len(bad) > 0 {
		return fmt.Errorf("These security configs can be dynamically updated only per-listener using the listener prefix: [%s]", strings.Join(bad, ", ")) //nolint:staticcheck // Kafka's words
	}
	if i := slices.IndexFunc(names, ofOneListener); i >= 0 {
		return fmt.Errorf("Invalid value %s for configuration %s: kaja can't change it while it runs yet", hidden, names[i]) //nolint:staticcheck // as the others
	}
	if bad := pick(func(d *Def) bool { return d.Scope == PerBroker && server.has(d.Name) }); len(bad) > 0 && !perBroker {
		return fmt.Errorf("Cannot update these configs at default cluster level, broker id must be specified: [%s]", strings.Join(bad, ", ")) //nolint:staticcheck // Kafka's words
	}
	values := dyn.Default
	if perBroker {
		values = dyn.Broker
	}
	for _, name := range names {
		if def, ok := alterable(name); ok {
			if err := c.validateAltered(def, values[name]); err != nil {
				return err
			}
		}
	}
	threads, next := cleanerThreads(c, was), cleanerThreads(c, dyn)
	if elsewhere && !(was.sets(cleanerThreadsName) && dyn.sets(cleanerThreadsName)) {
		threads = next // one of them is in that broker's file
	}
	if err := checkCleanerThreads(threads, next, slices.Contains(names, cleanerThreadsName)); err != nil {
		return err
	}
	if err := Overlay(c, dyn).checkConnections(); err != nil {
		return err
	}
	t := topicValues{c: c, dyn: dyn}
	if n := t.num("retention.ms"); n == 0 || n < -1 {
		return fmt.Errorf("log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	}
	if lo, hi := t.num("min.compaction.lag.ms"), t.num("max.compaction.lag.ms"); lo > hi {
		return lagConflict(lo, hi)
	}
	return nil
}

// ofOneListener reports whether name is a setting of the broker as Kafka takes it for one listener, or one of its TLS or SASL.
func ofOneListener(name string) bool {
	part := strings.SplitN(name, ".", 4) // listener.name.NAME.SETTING
	if len(part) < 4 || part[0] != "listener" || part[1] != "name" {
		return false
	}
	return server.has(part[3]) || strings.HasPrefix(part[3], "ssl.") || strings.Contains("."+part[3], ".sasl.")
}

// checkCleanerThreads refuses a number of cleaner threads that is less than half or more than twice the one in force, which comes of
// removing an altered one, too (Kafka: LogCleaner.validateReconfiguration). set says that the request names it.
func checkCleanerThreads(was, is int, set bool) error {
	switch {
	case is < 1 && (set || is != was):
		return fmt.Errorf("Log cleaner threads should be at least 1") //nolint:staticcheck // Kafka's words
	case is < was/2:
		return invalidDynamic("Log cleaner threads cannot be reduced to less than half the current value %d", was)
	case is > was*2:
		return invalidDynamic("Log cleaner threads cannot be increased to more than double the current value %d", was)
	}
	return nil
}

// invalidDynamic is how Kafka passes on what a part of it says of a change.
func invalidDynamic(format string, args ...any) error {
	return fmt.Errorf("Invalid value org.apache.kafka.common.config.ConfigException: %s for configuration Invalid dynamic configuration", //nolint:staticcheck // Kafka's words
		fmt.Sprintf(format, args...))
}

// validateAltered checks one value. Only what a topic takes from the broker can be changed while it runs; of anything
// else the value in force is all that is accepted.
func (c *Config) validateAltered(def *Def, value string) error {
	v, err := def.Parse(value)
	if err != nil {
		return err
	}
	if live[def.Name] && (def.Status == Enforced || def.Status == Stored) {
		return nil
	}
	current := any(nil)
	if server.has(def.Name) {
		current, _ = c.lookup(def)
	} else {
		current = def.defaultValue()
	}
	if Format(v) == Format(current) {
		return nil
	}
	shown := value
	if def.Sensitive() {
		shown = hidden
	}
	return fmt.Errorf("Invalid value %s for configuration %s: kaja can't change it while it runs yet", shown, def.Name) //nolint:staticcheck // as the others
}

// Settings of single parts of the broker whose change takes effect at once (Overlay).
var overlaid = []string{
	"max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides", "producer.id.expiration.ms",
	"transaction.partition.verification.enable",
}

// Overlay is c with what was altered since on top, of those settings that are looked up in it again after a change. A value
// that does not parse (written by another version) is passed over.
func Overlay(c *Config, dyn Dynamic) *Config {
	out := c
	for _, name := range overlaid {
		def := mustDef(name)
		for _, layer := range []map[string]string{dyn.Broker, dyn.Default} {
			v := parsed(def, layer)
			if v == nil {
				continue
			}
			if out == c {
				out = &Config{set: maps.Clone(c.set), dataDir: c.dataDir}
			}
			out.set[name] = setting{value: v, origin: Origin{Kind: FromArgument, Where: "an altered config"}}
			break
		}
	}
	return out
}

// live is the server properties whose change takes effect at once: those that topics take their defaults from, the
// cleaner's own, and those of Overlay.
var live = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range append(append(overlaid, cleanerNames...), moveRateName) {
		m[name] = true
	}
	for _, def := range topicTable {
		if len(def.Synonyms) > 0 {
			m[def.Synonyms[0].Name] = true
		}
	}
	return m
}()

// alterable finds a setting that can be named in an alter request.
func alterable(name string) (*Def, bool) {
	if def, ok := dynamicOnly.lookup(name); ok {
		return def, true
	}
	return server.lookup(name)
}

func (t table) has(name string) bool {
	_, ok := t.lookup(name)
	return ok
}

func lagConflict(lo, hi int64) error {
	return &ValueError{Name: "min.compaction.lag.ms", Value: fmt.Sprint(lo),
		Msg: fmt.Sprintf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", lo, hi)}
}

// ListDefault reports whether a topic config (topic) or broker setting is a list, and what APPEND and SUBTRACT start
// from where it is not set.
func ListDefault(topic bool, name string) (def string, isList bool) {
	d, ok := topics.lookup(name)
	if !topic {
		d, ok = alterable(name)
	}
	if !ok || d.Type != List {
		return "", false
	}
	return d.Default, true
}

// TopicValue is the value in force of a topic config as text, "" if it is null or unknown.
func TopicValue(c *Config, dyn Dynamic, overrides map[string]string, name string) string {
	if !topics.has(name) {
		return ""
	}
	return Format(topicValues{c: c, dyn: dyn, overrides: overrides}.value(name))
}

// sortedNames lists the names in m in order.
func sortedNames(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
