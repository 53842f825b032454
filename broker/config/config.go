package config

import (
	"fmt"
	"math"
	"time"
)

// Kind ranks the places that a setting can come from; a higher one wins.
type Kind uint8

const (
	// FromDefault is the built-in default.
	FromDefault Kind = iota
	// FromFile is a properties file.
	FromFile
	// FromKafkaEnv is a KAFKA_CFG_ or KAFKA_ environment variable.
	FromKafkaEnv
	// FromKajaEnv is a KAJA_ environment variable.
	FromKajaEnv
	// FromArgument is a name=value argument.
	FromArgument
)

// Origin is where a setting's value came from.
type Origin struct {
	Kind Kind
	// Where is fit for a message: "server.properties", "environment variable KAFKA_NODE_ID", "--set". Empty for a
	// default.
	Where string
}

// setting is a value that somebody gave.
type setting struct {
	value  any
	origin Origin
}

// Config is a server's whole static configuration: defaults and what was given, checked. It is immutable and safe for
// concurrent use. The getters panic with BUG: on a name that is not in the table or has another type.
type Config struct {
	set     map[string]setting
	unknown map[string]setting // what was given under names that are in no table; the values are texts
	dataDir string             // the data directory if neither log.dirs nor log.dir is set
}

// Default is the configuration of a node to which nobody told anything. dataDir is where its data goes.
func Default(dataDir string) *Config {
	return &Config{set: map[string]setting{}, unknown: map[string]setting{}, dataDir: dataDir}
}

// With is c with one more setting on top of all others, as --set would give it; for tests and embedding. It runs the
// checks of the setting itself, not those across settings (see Check).
func (c *Config) With(name, value string) (*Config, error) {
	def, ok := server.lookup(name)
	if !ok {
		return nil, fmt.Errorf("unknown server property %q", name)
	}
	v, err := def.Parse(value)
	if err != nil {
		return nil, err
	}
	n := &Config{set: make(map[string]setting, len(c.set)+1), unknown: c.unknown, dataDir: c.dataDir}
	for k, s := range c.set {
		n.set[k] = s
	}
	n.set[name] = setting{value: v, origin: Origin{Kind: FromArgument, Where: "--set"}}
	return n, nil
}

// IsSet reports whether somebody gave the setting a value under this very name.
func (c *Config) IsSet(name string) bool {
	mustDef(name)
	_, ok := c.set[name]
	return ok
}

// Origin tells where the value of a setting came from. A value given under a synonym counts.
func (c *Config) Origin(name string) Origin {
	_, o := c.lookup(mustDef(name))
	return o
}

// Int is the value of an Int or Short setting.
func (c *Config) Int(name string) int {
	n := c.Int64(name)
	if n > math.MaxInt || n < math.MinInt {
		panic("BUG: " + name + " does not fit an int")
	}
	return int(n)
}

// Int64 is the value of an Int, Short or Long setting.
func (c *Config) Int64(name string) int64 { return get[int64](c, name) }

// Bool is the value of a Boolean setting.
func (c *Config) Bool(name string) bool { return get[bool](c, name) }

// String is the value of a String, Class or Password setting, "" if it is null.
func (c *Config) String(name string) string { return get[string](c, name) }

// Double is the value of a Double setting.
func (c *Config) Double(name string) float64 { return get[float64](c, name) }

// List is the value of a List setting, nil if it is null. The caller must not change it.
func (c *Config) List(name string) []string { return get[[]string](c, name) }

// Duration is the value of a number setting whose name ends in its unit: .ms, .minutes, .hours or .seconds. Values
// beyond what a Duration holds become the longest one; negative ones stay negative.
func (c *Config) Duration(name string) time.Duration {
	n := c.Int64(name)
	unit := int64(0)
	for suffix, ms := range map[string]int64{".ms": 1, ".millis": 1, ".seconds": 1000, ".secs": 1000, ".minutes": minuteMs, ".hours": hourMs} {
		if len(name) > len(suffix) && name[len(name)-len(suffix):] == suffix {
			unit = ms
		}
	}
	if unit == 0 {
		panic("BUG: no unit in the name of " + name)
	}
	return millis(scale(n, unit))
}

// get reads a setting and asserts its type.
func get[T any](c *Config, name string) T {
	var zero T
	v, _ := c.lookup(mustDef(name))
	if v == nil {
		return zero
	}
	t, ok := v.(T)
	if !ok {
		panic(fmt.Sprintf("BUG: setting %s is a %T, not a %T", name, v, zero))
	}
	return t
}

func mustDef(name string) *Def {
	def, ok := server.lookup(name)
	if !ok {
		panic("BUG: no setting is called " + name)
	}
	return def
}

// lookup is the effective value of a setting: given under its own name, given under a synonym (in order), its default,
// a synonym's default. nil if there is none.
func (c *Config) lookup(def *Def) (any, Origin) {
	if s, ok := c.set[def.Name]; ok {
		return s.value, s.origin
	}
	for _, syn := range def.Synonyms {
		if s, ok := c.set[syn.Name]; ok {
			return scaleValue(s.value, syn.Scale), s.origin
		}
	}
	if !def.NoDefault {
		return c.defaultOf(def), Origin{}
	}
	for _, syn := range def.Synonyms {
		if d := mustDef(syn.Name); !d.NoDefault {
			return scaleValue(c.defaultOf(d), syn.Scale), Origin{}
		}
	}
	return nil, Origin{}
}

// defaultOf is the default of a setting on this machine: that of log.dir depends on it.
func (c *Config) defaultOf(def *Def) any {
	if def.Name == "log.dir" {
		return []string{c.dataDir}
	}
	return def.defaultValue()
}

func scaleValue(v any, by int64) any {
	if n, ok := v.(int64); ok {
		return scale(n, by)
	}
	return v
}

// scale multiplies without overflow. Negative values mean "never" in every unit and stay as they are.
func scale(n, by int64) int64 {
	switch {
	case n < 0:
		return n
	case by > 1 && n > math.MaxInt64/by:
		return math.MaxInt64
	}
	return n * by
}

// LogDirs is the data directories in the order given, at least one.
func (c *Config) LogDirs() []string { return c.List("log.dirs") }

// MetadataDir is the directory that holds the metadata log.
func (c *Config) MetadataDir() string {
	if dir := c.String("metadata.log.dir"); dir != "" {
		return dir
	}
	return c.LogDirs()[0]
}

// NodeID is the number of this node.
func (c *Config) NodeID() int32 { return int32(c.Int64("node.id")) }
