package main

import "strings"

// document is what an earlier docs/compatibility.md says.
type document struct {
	cells    map[[3]string][4]string // by client, version and what ran: kaja and Kafka, each on one node and on three
	versions map[string]string       // of a client of the matrix: its line
}

// parse reads the tables of the document; what does not look like one of their lines is passed over.
func parse(text string) document {
	d := document{cells: map[[3]string][4]string{}, versions: map[string]string{}}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		if strings.HasPrefix(fields[0], "---") || strings.HasPrefix(fields[0], "client") {
			continue
		}
		switch len(fields) {
		case 7:
			d.cells[[3]string(fields[:3])] = [4]string(fields[3:])
		case 2:
			d.versions[fields[0]] = fields[1]
		}
	}
	return d
}

// has reports whether the document has the row, of the same version.
func (d document) has(r row) bool {
	_, ok := d.cells[r.key()]
	return ok
}
