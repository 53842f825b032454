package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ValueError says that a value does not fit its setting. Its text is what Kafka answers for the same value.
type ValueError struct {
	Name  string
	Value string // as given; "[hidden]" for passwords
	Msg   string // the whole text, if it does not follow the common form
	Why   string // the reason, without name and value
}

// Error is "Invalid value V for configuration N: reason", or the whole message where Kafka's differs.
func (e *ValueError) Error() string {
	if e.Msg != "" {
		return e.Msg
	}
	return fmt.Sprintf("Invalid value %s for configuration %s: %s", e.Value, e.Name, e.Why)
}

// parseValue follows Kafka's ConfigDef: blanks around a value do not count, booleans in any case, lists split at commas.
func parseValue(name string, t Type, text string) (any, error) {
	s := trimJava(text)
	bad := func(why string) error { return &ValueError{Name: name, Value: text, Why: why} }
	switch t {
	case Boolean:
		switch {
		case strings.EqualFold(s, "true"):
			return true, nil
		case strings.EqualFold(s, "false"):
			return false, nil
		}
		return nil, bad("Expected value to be either true or false")
	case Int, Short, Long:
		bits := map[Type]int{Int: 32, Short: 16, Long: 64}[t]
		n, err := parseInt(s, bits)
		if err != nil {
			return nil, bad("Not a number of type " + t.String())
		}
		return n, nil
	case Double:
		f, err := parseDouble(s)
		if err != nil {
			return nil, bad("Not a number of type " + t.String())
		}
		return f, nil
	case List:
		return splitList(s), nil
	}
	return s, nil
}

// trimJava drops what Java's String.trim drops: every character up to the blank, at both ends.
func trimJava(s string) string {
	return strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
}

// parseInt is Java's Integer.parseInt and Long.parseLong: decimal digits with one optional sign, nothing else.
func parseInt(s string, bits int) (int64, error) {
	if strings.Contains(s, "_") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, bits)
}

// parseDouble is Java's Double.parseDouble: Go's syntax without underscores, "inf" and "nan" in other spellings, plus
// one type suffix.
func parseDouble(s string) (float64, error) {
	t := strings.TrimLeft(s, "+-")
	switch {
	case t == "NaN" || t == "Infinity":
		return strconv.ParseFloat(s, 64)
	case strings.ContainsAny(t, "_iInN"):
		return 0, strconv.ErrSyntax
	}
	hex := strings.HasPrefix(strings.ToLower(t), "0x")
	if n := len(s); n > 1 && strings.ContainsRune("fFdD", rune(s[n-1])) && (!hex || strings.ContainsAny(s, "pP")) {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && math.IsInf(f, 0) {
		return f, nil // Java gives an infinity where Go reports a range error
	}
	return f, err
}

// splitList splits at commas and trims the parts; an empty text is an empty list, an empty part stays one.
func splitList(s string) []string {
	s = trimJava(s)
	if s == "" {
		return []string{}
	}
	parts := strings.Split(s, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

// Format gives a parsed value the text that Kafka describes it with. nil becomes "".
func Format(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		return strconv.FormatBool(v)
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return formatDouble(v)
	case []string:
		return strings.Join(v, ",")
	}
	panic(fmt.Sprintf("BUG: a setting cannot hold a %T", v))
}

// formatDouble is Java's Double.toString: plain between 0.001 and 10^7, else a mantissa with E and the exponent, and
// always one digit behind the point.
func formatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0:
		if math.Signbit(f) {
			return "-0.0"
		}
		return "0.0"
	}
	if a := math.Abs(f); a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	e, err := strconv.Atoi(exponent)
	if err != nil {
		panic("BUG: exponent " + exponent)
	}
	return mantissa + "E" + strconv.Itoa(e)
}

// millis turns milliseconds into a Duration; what does not fit becomes the longest one, negative values stay negative.
func millis(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case ms > most:
		return math.MaxInt64
	case ms < -most:
		return math.MinInt64
	}
	return time.Duration(ms) * time.Millisecond
}
