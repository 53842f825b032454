package config

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// Sources is everything that a configuration is made from. Precedence, lowest first: built-in defaults, File, KAFKA_CFG_*
// and KAFKA_* of Env, KAJA_* of Env, Set.
type Sources struct {
	// FileName names File in messages. File is a properties file in Java's syntax, nil if there is none.
	FileName string
	File     []byte
	// Env is the environment as NAME=value. A variable KAFKA_X_Y is the property x.y: the prefix goes, the rest becomes
	// lower case, then "___" stands for "-", "__" for "_" and "_" for ".". KAFKA_CFG_X_Y means the same with less
	// weight. CLUSTER_ID, KAFKA_CLUSTER_ID and KAFKA_KRAFT_CLUSTER_ID are kaja.cluster.id. KAJA_X_Y is x.y if that is a property, else kaja.x.y. HOME and XDG_DATA_HOME give the data directory.
	Env []string
	// Set is arguments of the form name=value, later ones win.
	Set []string
	// Mounts is where file systems are mounted, as far as that is known. One at a place where an image of Kafka keeps its data says
	// where data goes if no setting does.
	Mounts []string
	// Hostname is the machine's own name, "" if unknown. It only serves to recognise the node's own address.
	Hostname string
}

// ReportKind says why a setting is reported.
type ReportKind uint8

const (
	// Unknown means that no property is called so. It has no effect.
	Unknown ReportKind = iota
	// NotSupported means that the property is known, but only its default is supported. The given value has no effect.
	NotSupported
	// NotApplicable means that the property steers something that kaja does not have. The given value has no effect.
	NotApplicable
	// NoTLS means that the property is about TLS, and no listener of nodes is SSL. The given value has no effect.
	NoTLS
)

// String is fit for a log line.
func (k ReportKind) String() string {
	return [...]string{"unknown property: ignored", "not supported yet: ignored", "does not apply to kaja: ignored", "no listener is SSL: ignored"}[k]
}

// Report is one given property that has no effect. It never holds the value of a password.
type Report struct {
	Name   string
	Value  string // as given; "[hidden]" for passwords and for names that are not known
	Origin Origin
	Kind   ReportKind
}

const hidden = "[hidden]"

// given is a name and a text before it is known what the name means.
type given struct {
	name, text string
	origin     Origin
}

// Load merges, parses and checks. The reports are in the order of their names and come with an error too; the error
// joins everything that is wrong, one line each.
func Load(s Sources) (*Config, []Report, error) {
	all, err := s.gather()
	if err != nil {
		return nil, nil, err
	}
	merged := map[string]given{}
	for _, g := range all { // in rising precedence
		if old, ok := merged[g.name]; !ok || g.origin.Kind >= old.origin.Kind {
			merged[g.name] = g
		}
	}
	c := Default(cmp.Or(volume(s.Mounts), dataDir(s.Env)))
	var reports []Report
	var errs []error
	for _, name := range slices.Sorted(mapKeys(merged)) {
		report, err := c.take(merged[name])
		if report != nil {
			reports = append(reports, *report)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, c.Check(s.Hostname))
		reports = append(reports, c.unusedTLS()...)
		slices.SortStableFunc(reports, func(a, b Report) int { return strings.Compare(a.Name, b.Name) })
	}
	if err := errors.Join(errs...); err != nil {
		return nil, reports, err
	}
	return c, reports, nil
}

func mapKeys(m map[string]given) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// take puts one given property into c, or says why not.
func (c *Config) take(g given) (*Report, error) {
	def, ok := server.lookup(g.name)
	if !ok {
		c.unknown[g.name] = setting{value: g.text, origin: g.origin}
		kind := Unknown
		if strings.HasPrefix(g.name, "listener.name.") {
			kind = NotSupported // overrides of single listeners belong to TLS and SASL
		}
		return &Report{Name: g.name, Value: hidden, Origin: g.origin, Kind: kind}, nil
	}
	v, err := def.Parse(g.text)
	if err != nil {
		return nil, fmt.Errorf("%s (from %s): %w", g.name, g.origin.Where, err)
	}
	if def.NoDefault && Format(v) == "" {
		return nil, nil // "name=" of a setting without a default leaves it absent
	}
	shown := Format(v)
	if def.Sensitive() {
		shown = hidden
	}
	switch {
	case def.Status == Enforced || def.Status == Stored:
		c.set[g.name] = setting{value: v, origin: g.origin}
	case def.isDefault(v):
		c.set[g.name] = setting{value: v, origin: g.origin}
	case def.Status == Refused:
		return nil, fmt.Errorf("%s (from %s): %s is not supported yet, and running without it would not be what was asked for; remove the setting", g.name, g.origin.Where, shown)
	case def.Status == Irrelevant:
		return &Report{Name: g.name, Value: shown, Origin: g.origin, Kind: NotApplicable}, nil
	default:
		return &Report{Name: g.name, Value: shown, Origin: g.origin, Kind: NotSupported}, nil
	}
	return nil, nil
}

// gather lists what all sources give, in rising precedence.
func (s Sources) gather() ([]given, error) {
	out, err := parseProperties(s.FileName, s.File)
	if err != nil {
		return nil, err
	}
	out = append(out, parseEnv(s.Env)...)
	for _, arg := range s.Set {
		name, value, ok := strings.Cut(arg, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, &UsageError{Arg: arg}
		}
		out = append(out, given{name, value, Origin{FromArgument, "--set " + name}})
	}
	return out, nil
}

// UsageError is an argument that is not name=value.
type UsageError struct{ Arg string }

// Error quotes the argument.
func (e *UsageError) Error() string { return fmt.Sprintf("--set %q is not name=value", e.Arg) }

// parseProperties reads Java's properties syntax: comments, escapes, continued lines; ${} is left alone. The text may
// be UTF-8; if it is not, it is read as ISO 8859-1, as Java does.
func parseProperties(fileName string, data []byte) (out []given, err error) {
	encoding := properties.UTF8
	if !utf8.Valid(data) {
		encoding = properties.ISO_8859_1
	}
	loader := properties.Loader{Encoding: encoding, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a properties file: %w", fileName, err)
	}
	for _, name := range p.Keys() {
		text, _ := p.Get(name)
		out = append(out, given{name, text, Origin{FromFile, fileName}})
	}
	return out, nil
}

// Variables with the prefix KAFKA_ that are about a JVM or its scripts and never properties.
var jvmVariables = []string{"KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS",
	"KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME",
	"KAFKA_HEAP_OPTS_FILE", "KAFKA_OPTS_FILE"}

// Variables that give the cluster id: of the apache/kafka image, and of bitnami's.
var clusterIDVariables = []string{"CLUSTER_ID", "KAFKA_KRAFT_CLUSTER_ID", "KAFKA_CLUSTER_ID"}

// parseEnv reads KAFKA_CFG_, KAFKA_ and KAJA_ variables, in this order.
func parseEnv(env []string) []given {
	var cfg, kafka, kaja []given
	for _, entry := range env {
		name, text, ok := strings.Cut(entry, "=")
		if !ok || slices.Contains(jvmVariables, name) {
			continue
		}
		where := "environment variable " + name
		switch {
		case slices.Contains(clusterIDVariables, name):
			kafka = append(kafka, given{"kaja.cluster.id", text, Origin{FromKafkaEnv, where}})
		case name == "KAFKA_ENABLE_KRAFT": // there is nothing else
		case strings.HasSuffix(name, "_FILE") && slices.Contains(fileVariables, strings.TrimSuffix(name, "_FILE")): // without a path
		case name == "KAFKA_LOG4J_ROOT_LOGLEVEL":
			if level := log4jLevel(text); level != "" {
				kafka = append(kafka, given{"kaja.log.level", level, Origin{FromKafkaEnv, where}})
			}
		case has(name, "KAFKA_CFG_"):
			cfg = append(cfg, given{propertyName(name[len("KAFKA_CFG_"):]), text, Origin{FromKafkaEnv, where}})
		case has(name, "KAFKA_"):
			kafka = append(kafka, given{propertyName(name[len("KAFKA_"):]), text, Origin{FromKafkaEnv, where}})
		case has(name, "KAJA_"):
			kaja = append(kaja, given{ownName(propertyName(name[len("KAJA_"):])), text, Origin{FromKajaEnv, where}})
		}
	}
	return slices.Concat(cfg, kafka, kaja)
}

// has reports whether name is prefix and something more.
func has(name, prefix string) bool { return strings.HasPrefix(name, prefix) && len(name) > len(prefix) }

// propertyName is the apache/kafka image's rule for names.
func propertyName(s string) string {
	s = strings.ReplaceAll(strings.ToLower(s), "_", ".")
	s = strings.ReplaceAll(s, "...", "-")
	return strings.ReplaceAll(s, "..", "_")
}

// ownName lets KAJA_FSYNC mean kaja.fsync.
func ownName(name string) string {
	if _, ok := server.lookup(name); ok {
		return name
	}
	if _, ok := server.lookup("kaja." + name); ok {
		return "kaja." + name
	}
	return name
}

// log4jLevel is the level of kaja's log that stands for a level of log4j, "" if it is none.
func log4jLevel(s string) string {
	switch strings.ToUpper(strings.TrimSpace(s)) {
	case "ALL", "TRACE", "DEBUG":
		return "debug"
	case "INFO":
		return "info"
	case "WARN":
		return "warn"
	case "ERROR", "FATAL", "OFF":
		return "error"
	}
	return ""
}

// dataDir is where data goes if neither a setting nor a volume says so: $XDG_DATA_HOME/kaja, else $HOME/.local/share/kaja, else ./kaja-data.
// A relative XDG_DATA_HOME does not count (XDG Base Directory Specification).
func dataDir(env []string) string {
	get := func(name string) string {
		for _, entry := range slices.Backward(env) {
			if n, v, ok := strings.Cut(entry, "="); ok && n == name {
				return v
			}
		}
		return ""
	}
	if xdg := get("XDG_DATA_HOME"); path.IsAbs(xdg) {
		return path.Join(xdg, "kaja")
	}
	if home := get("HOME"); home != "" {
		return path.Join(home, ".local/share/kaja")
	}
	return "kaja-data"
}
