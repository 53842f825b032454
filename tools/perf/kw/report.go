package kw

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Figures are what one round of one subject gave, by name.
type Figures map[string]float64

// Row collects the rounds of one subject in one part of a measurement.
type Row struct {
	Part, Subject string
	Samples       []Figures
}

// Median is that of the rounds which have the figure; false if none has.
func (r *Row) Median(figure string) (float64, bool) {
	var v []float64
	for _, s := range r.Samples {
		if x, ok := s[figure]; ok {
			v = append(v, x)
		}
	}
	if len(v) == 0 {
		return 0, false
	}
	slices.Sort(v)
	return v[len(v)/2], true
}

// Table prints the medians of rows, a column for each of figures.
func Table(out io.Writer, title, note string, figures []string, rows []*Row) error {
	fmt.Fprintf(out, "\n%s (%s)\n", title, note)
	w := tabwriter.NewWriter(out, 2, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\t", "rounds\t")
	for _, f := range figures {
		fmt.Fprint(w, f, "\t")
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprint(w, r.Subject, "\t", len(r.Samples), "\t")
		for _, f := range figures {
			if v, ok := r.Median(f); ok {
				fmt.Fprintf(w, "%.4g\t", v)
			} else {
				fmt.Fprint(w, "-\t")
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// LoadAverage is the machine's over the last minute, to tell how far absolute figures can be trusted; "?" where it is not told.
func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
