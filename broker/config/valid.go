package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Validator is a rule for parsed values. Its text is the "valid values" column of docs/config.md.
type Validator interface {
	check(name string, v any) error
	String() string
}

// bounds is a numeric range, both ends inclusive; a nil end is open. NaN passes, as in Kafka.
type bounds struct {
	lo, hi *float64
	text   string
}

func atLeast(lo int64) Validator {
	l := float64(lo)
	return &bounds{lo: &l, text: fmt.Sprintf("at least %d", lo)}
}

func between(lo, hi float64) Validator {
	return &bounds{lo: &lo, hi: &hi, text: fmt.Sprintf("%s to %s", plain(lo), plain(hi))}
}

// plain writes a bound as Kafka's messages do: without a fraction if it has none.
func plain(f float64) string {
	if f == float64(int64(f)) {
		return fmt.Sprintf("%d", int64(f))
	}
	return formatDouble(f)
}

func (b *bounds) String() string { return b.text }

func (b *bounds) check(name string, v any) error {
	var f float64
	switch n := v.(type) {
	case int64:
		f = float64(n)
	case float64:
		f = n
	}
	switch {
	case b.lo != nil && f < *b.lo:
		return &ValueError{Name: name, Value: Format(v), Why: "Value must be at least " + plain(*b.lo)}
	case b.hi != nil && f > *b.hi:
		return &ValueError{Name: name, Value: Format(v), Why: "Value must be no more than " + plain(*b.hi)}
	}
	return nil
}

// gzipLevel accepts 1 to 9, and -1 for the codec's own default.
type gzipLevel struct{}

func (gzipLevel) String() string { return "1 to 9, or -1" }

func (gzipLevel) check(name string, v any) error {
	if n := v.(int64); n != -1 && (n < 1 || n > 9) {
		return &ValueError{Name: name, Value: Format(v), Why: "Value must be between 1 and 9 or equal to -1"}
	}
	return nil
}

// words accepts some words: of a string the whole, of a list each entry.
type words struct {
	allowed []string
	fold    bool // case does not count
}

func oneOf(allowed ...string) Validator     { return &words{allowed: allowed} }
func oneOfFold(allowed ...string) Validator { return &words{allowed: allowed, fold: true} }

func (w *words) String() string {
	if w.fold {
		return strings.Join(w.allowed, ", ") + " (any case)"
	}
	return strings.Join(w.allowed, ", ")
}

func (w *words) has(s string) bool {
	return slices.ContainsFunc(w.allowed, func(a string) bool { return a == s || w.fold && strings.EqualFold(a, s) })
}

func (w *words) check(name string, v any) error {
	list, isList := v.([]string)
	if !isList {
		list = []string{v.(string)}
	}
	for _, s := range list {
		if s == "" && isList {
			return &ValueError{Name: name, Value: Format(v), Msg: fmt.Sprintf("Configuration '%s' values must not be empty.", name)}
		}
	}
	for _, s := range list {
		if w.has(s) {
			continue
		}
		why := "String must be one of: "
		if w.fold {
			why = "String must be one of (case insensitive): "
		}
		return &ValueError{Name: name, Value: s, Why: why + strings.Join(w.allowed, ", ")}
	}
	return nil
}

// nonEmpty refuses the empty string.
type nonEmpty struct{}

func (nonEmpty) String() string { return "not empty" }

func (nonEmpty) check(name string, v any) error {
	if s, ok := v.(string); ok && s == "" {
		return &ValueError{Name: name, Value: "", Why: "String must be non-empty"}
	}
	return nil
}

// throttledReplicas is "*" or a list of partition:broker.
type throttledReplicas struct{}

func (throttledReplicas) String() string { return "*, or partition:broker,…" }

func (throttledReplicas) check(name string, v any) error {
	list := v.([]string)
	if len(list) == 1 && list[0] == "*" {
		return nil
	}
	pair := regexp.MustCompile(`^[0-9]+:[0-9]+$`)
	for _, s := range list {
		if !pair.MatchString(s) {
			return &ValueError{Name: name, Value: "[" + strings.Join(list, ", ") + "]", Why: name +
				" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."}
		}
	}
	return nil
}
