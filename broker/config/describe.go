package config

import (
	"maps"
	"slices"
	"strings"
)

// Entry is one described setting.
type Entry struct {
	Def *Def
	// Value is the value in force; nil for null and for passwords.
	Value  *string
	Source Source
	// ReadOnly: it can't be altered while the node runs.
	ReadOnly bool
	// Synonyms is where else the setting has a value, the place in force first.
	Synonyms []EntrySynonym
}

// EntrySynonym is one place that has a value for a setting.
type EntrySynonym struct {
	Name   string
	Value  *string // nil for passwords
	Source Source
}

// DescribeTopic describes the configs of a topic in the order in which Kafka lists them. asked are the names to describe,
// all if there are none. What Kafka does not list by itself (hidden settings and kaja's own) is described when the topic has
// a value of its own for it; kaja's own settings also when they are asked for by name.
//
// The synonyms follow Kafka's rule (ConfigHelper.configSynonyms): of the broker's settings only those count that stand
// at or behind the first one that is given under the main synonym's own name. So a retention given by
// log.retention.hours is in force, and is described as a default.
func DescribeTopic(c *Config, dyn Dynamic, overrides map[string]string, asked ...string) []Entry {
	v := topicValues{c: c, dyn: dyn, overrides: overrides}
	out := make([]Entry, 0, len(topics.defs))
	for _, def := range topicsDescribed {
		if _, own := overrides[def.Name]; !listed(def, own, asked) {
			continue
		}
		e := Entry{Def: def, Value: text(def, v.value(def.Name)), Source: SourceDefault}
		if own := parsed(def, overrides); own != nil {
			e.Synonyms = append(e.Synonyms, EntrySynonym{def.Name, text(def, own), SourceTopic})
		}
		if len(def.Synonyms) > 0 {
			e.Synonyms = append(e.Synonyms, c.synonyms(dyn, mustDef(def.Synonyms[0].Name))...)
		}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		out = append(out, e)
	}
	return out
}

// listed reports whether a setting is described: own is whether the described resource has a value of its own for it.
func listed(def *Def, own bool, asked []string) bool {
	byName := slices.Contains(asked, def.Name)
	switch {
	case def.Hidden && !own, len(asked) > 0 && !byName:
		return false
	}
	return own || byName || !strings.HasPrefix(def.Name, ownPrefix)
}

// DescribeBroker describes the server properties of this node in the order in which Kafka lists them. asked are the names
// to describe, all if there are none. Of kaja's own those are described that are asked for by name or have been given.
// What is no property of a server file (rates that can only be altered, names that nobody knows) stands before all
// others, as in Kafka, in the order of the alphabet.
func DescribeBroker(c *Config, dyn Dynamic, asked ...string) []Entry {
	out := make([]Entry, 0, len(server.defs))
	for _, def := range slices.Concat(c.givenBesides(dyn), serverDescribed) {
		if def.Hidden || !listed(def, c.givenAnywhere(dyn, def.Name), asked) {
			continue
		}
		e := Entry{Def: def, Value: text(def, c.described(dyn, def)), Source: SourceDefault, ReadOnly: def.Scope == ReadOnly}
		if e.Synonyms = c.synonyms(dyn, def); len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		out = append(out, e)
	}
	return out
}

// DescribeBrokerDefaults describes what was altered for all brokers, in Kafka's order. asked are the names to describe, all
// if there are none.
func DescribeBrokerDefaults(dyn Dynamic, asked ...string) []Entry {
	var out []Entry
	for _, def := range slices.Concat(server.defs, besides(dyn.Default)) {
		v := parsed(def, dyn.Default)
		if v == nil || !listed(def, true, asked) {
			continue
		}
		value := text(def, v)
		out = append(out, Entry{Def: def, Value: value, Source: SourceDefaultBroker, ReadOnly: def.Scope == ReadOnly,
			Synonyms: []EntrySynonym{{def.Name, value, SourceDefaultBroker}}})
	}
	slices.SortFunc(out, hashOrder(len(out)))
	return out
}

// besides gives what m has that is no server property, in the order of the names.
func besides(m map[string]string) []*Def {
	var out []*Def
	for _, name := range sortedNames(m) {
		def, ok := alterable(name)
		if !ok {
			def = unknownDef(name)
		}
		if !server.has(name) {
			out = append(out, def)
		}
	}
	return out
}

// givenBesides is besides of all that this node was given at start or afterwards.
func (c *Config) givenBesides(dyn Dynamic) []*Def {
	all := map[string]string{}
	maps.Copy(all, dyn.Broker)
	maps.Copy(all, dyn.Default)
	for name := range c.unknown {
		all[name] = ""
	}
	return besides(all)
}

// described is the value of a server property under its own name: what Kafka shows, which is null for log.retention.ms
// when only log.retention.hours is given.
func (c *Config) described(dyn Dynamic, def *Def) any {
	for _, m := range []map[string]string{dyn.Broker, dyn.Default} {
		if v := parsed(def, m); v != nil {
			return v
		}
	}
	if s, ok := c.given(def.Name); ok {
		return s.value
	}
	if def.NoDefault {
		return nil
	}
	return c.defaultOf(def)
}

// givenAnywhere reports whether a server property was given at start or altered since.
func (c *Config) givenAnywhere(dyn Dynamic, name string) bool {
	_, atStart := c.given(name)
	_, forBroker := dyn.Broker[name]
	_, forAll := dyn.Default[name]
	return atStart || forBroker || forAll
}

// given is what was given at start under a name. broker.id goes along with node.id, as in Kafka.
func (c *Config) given(name string) (setting, bool) {
	s, ok := c.set[name]
	if !ok {
		s, ok = c.unknown[name]
	}
	if !ok && name == "broker.id" {
		s, ok = c.set["node.id"]
	}
	return s, ok
}

// synonyms lists where a server property and its own synonyms have values, by kind of source, from the first one under
// the property's own name on.
func (c *Config) synonyms(dyn Dynamic, def *Def) []EntrySynonym {
	defs := []*Def{def}
	if def.Name != "node.id" && def.Name != "log.dirs" { // Kafka describes these two by themselves
		for _, syn := range def.Synonyms {
			defs = append(defs, mustDef(syn.Name))
		}
	}
	var out []EntrySynonym
	add := func(d *Def, v any, source Source) {
		if len(out) > 0 || d == def {
			out = append(out, EntrySynonym{d.Name, text(d, v), source})
		}
	}
	for _, layer := range []struct {
		values map[string]string
		source Source
	}{{dyn.Broker, SourceBroker}, {dyn.Default, SourceDefaultBroker}} {
		for _, d := range defs {
			if v := parsed(d, layer.values); v != nil {
				add(d, v, layer.source)
			}
		}
	}
	for _, d := range defs {
		if s, ok := c.given(d.Name); ok {
			add(d, s.value, SourceStatic)
		}
	}
	for _, d := range defs {
		if !d.NoDefault && server.has(d.Name) {
			add(d, c.defaultOf(d), SourceDefault)
		}
	}
	return out
}

// text is a value as DescribeConfigs gives it.
func text(def *Def, v any) *string {
	if v == nil || def.Sensitive() {
		return nil
	}
	s := Format(v)
	return &s
}
