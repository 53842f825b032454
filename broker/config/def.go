package config

import "slices"

// Type is the type of a setting, numbered as DescribeConfigs answers it.
type Type int8

// The types that Kafka's settings have.
const (
	untyped  Type = 0 // of a name that is in no table
	Boolean  Type = 1
	String   Type = 2
	Int      Type = 3
	Short    Type = 4
	Long     Type = 5
	Double   Type = 6
	List     Type = 7
	Class    Type = 8
	Password Type = 9
)

// String is the name that Kafka's messages use for t, in capitals.
func (t Type) String() string {
	switch t {
	case Boolean:
		return "BOOLEAN"
	case String:
		return "STRING"
	case Int:
		return "INT"
	case Short:
		return "SHORT"
	case Long:
		return "LONG"
	case Double:
		return "DOUBLE"
	case List:
		return "LIST"
	case Class:
		return "CLASS"
	case Password:
		return "PASSWORD"
	}
	return "UNKNOWN"
}

// Scope says who may change a setting while the node runs.
type Scope uint8

const (
	// ReadOnly settings are read at start only.
	ReadOnly Scope = iota
	// PerBroker settings may be altered for one broker, not as the default of all.
	PerBroker
	// ClusterWide settings may be altered for one broker or as the default of all.
	ClusterWide
	// PerTopic settings belong to a topic.
	PerTopic
)

// String is the word that docs/config.md uses.
func (s Scope) String() string {
	return [...]string{"read-only", "per-broker", "cluster-wide", "topic"}[s]
}

// Status says what kaja does with a setting.
type Status uint8

const (
	// Enforced settings have their effect at every legal value.
	Enforced Status = iota
	// Stored settings accept and keep every legal value; what they steer is not there yet (docs/limits.md).
	Stored
	// DefaultOnly settings are known, not enforced yet. The default is accepted. Of a server property any other value is reported
	// at start and ignored; of a topic config any other value is INVALID_CONFIG.
	DefaultOnly
	// Refused settings are as DefaultOnly, but a server with another value does not start, because running without the setting
	// would be unsafe or would mean something else than was asked for.
	Refused
	// Irrelevant settings steer something that kaja does not have (threads of a JVM, metric reporter classes). One is
	// reported at start when it is set to another value than its default.
	Irrelevant
)

// String is the word that docs/config.md uses.
func (s Status) String() string {
	return [...]string{"enforced", "stored", "default only", "refused", "not applicable"}[s]
}

// Def is one setting. A Def is immutable; the package owns it.
type Def struct {
	// Name is the full name, as it stands in a properties file or a topic's configs.
	Name string
	Type Type
	// Default is the built-in default in text; it is meaningless when NoDefault is set.
	Default string
	// NoDefault: the setting is null (absent) until somebody sets it.
	NoDefault bool
	// Valid checks a parsed value; nil accepts every value of the type.
	Valid Validator
	Scope Scope
	// Status says what kaja does with the setting.
	Status Status
	// Hidden settings are accepted, and neither listed by DescribeConfigs nor in docs/config.md.
	Hidden bool
	// Synonyms of a topic config are the server properties that give its default, highest priority first. Synonyms of
	// a server property are other server properties that mean the same in another unit, in the order they are tried
	// after the property itself.
	Synonyms []Synonym
	// Doc is one or two sentences for people.
	Doc string
}

// Synonym is another name of a setting.
type Synonym struct {
	Name string
	// Scale turns a value under this name into the unit of the setting (3,600,000 for hours to milliseconds); 1 if the
	// units agree.
	Scale int64
}

// Sensitive reports whether the value must never be shown, logged or described. Of a name that nobody knows nobody knows
// either whether it holds a secret.
func (d *Def) Sensitive() bool { return d.Type == Password || d.Type == untyped }

// unknownDef stands for a name that is in no table: text without a default that nothing reads and DescribeConfigs lists.
func unknownDef(name string) *Def {
	return &Def{Name: name, Type: untyped, NoDefault: true, Scope: ReadOnly, Status: Irrelevant}
}

// Documented reports whether there is a text about the setting.
func (d *Def) Documented() bool { return d.Type != untyped }

// Parse turns text into a value of d's type and checks it: bool, string, int64 (for Int, Short and Long), float64 or
// []string. Errors are *ValueError with the words that Kafka uses.
func (d *Def) Parse(text string) (any, error) {
	v, err := parseValue(d.Name, d.Type, text)
	if err != nil {
		return nil, err
	}
	if d.Valid != nil {
		if err := d.Valid.check(d.Name, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// defaultValue is the parsed default, nil where there is none.
func (d *Def) defaultValue() any {
	if d.NoDefault {
		return nil
	}
	v, err := parseValue(d.Name, d.Type, d.Default)
	if err != nil {
		panic("BUG: default of " + d.Name + " does not parse: " + err.Error())
	}
	return v
}

// isDefault reports whether v, a parsed value, equals the default.
func (d *Def) isDefault(v any) bool {
	if d.NoDefault {
		return v == nil || Format(v) == ""
	}
	return Format(v) == Format(d.defaultValue())
}

// table is a sorted list of settings with look-up by name.
type table struct {
	defs []*Def
}

// newTable sorts and indexes defs. A name that is there twice is a programmer error.
func newTable(groups ...[]Def) table {
	var t table
	for _, g := range groups {
		for i := range g {
			t.defs = append(t.defs, &g[i])
		}
	}
	slices.SortFunc(t.defs, func(a, b *Def) int { return compareNames(a.Name, b.Name) })
	for i := 1; i < len(t.defs); i++ {
		if t.defs[i].Name == t.defs[i-1].Name {
			panic("BUG: setting defined twice: " + t.defs[i].Name)
		}
	}
	return t
}

// lookup finds a setting by its exact name.
func (t table) lookup(name string) (*Def, bool) {
	i, ok := slices.BinarySearchFunc(t.defs, name, func(d *Def, n string) int { return compareNames(d.Name, n) })
	if !ok {
		return nil, false
	}
	return t.defs[i], true
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
