// Command table turns what the compatibility tests printed into docs/compatibility.md: which client, in which version, did what,
// and how it ended on kaja and on Kafka 4.4. "make compat" and "make clients" leave their output in build/ and run it.
//
//	table -before docs/compatibility.md -kaja 'build/compat-kaja*.txt,build/clients-kaja*.txt' -kafka 'build/compat-kafka*.txt,build/clients-kafka*.txt'
//
// Each file is a run. A run may be of a few tests only: of a test that several have, the last one counts, and where nothing ran
// the document of before has the word, as long as the same was done with the same version of the client.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	kaja := flag.String("kaja", "", "`patterns` of files with the output of the tests on kaja, the last run last, separated by commas")
	kafka := flag.String("kafka", "", "the same on Kafka 4.4")
	before := flag.String("before", "", "the document as it is, for what did not run this time")
	flag.Parse()
	var known document
	if *before != "" {
		data, err := os.ReadFile(*before)
		if err != nil {
			fmt.Fprintln(os.Stderr, "table: read what is known:", err)
			os.Exit(1)
		}
		known = parse(string(data))
	}
	var runs [2][]string
	for i, patterns := range []string{*kaja, *kafka} {
		var err error
		if runs[i], err = read(patterns); err != nil {
			fmt.Fprintln(os.Stderr, "table:", err)
			os.Exit(1)
		}
	}
	fmt.Print(page(known, runs[0], runs[1]))
}

// read gives what is in each file that a pattern matches, in the order of the names; a pattern that matches none was not run.
func read(patterns string) (runs []string, err error) {
	for pattern := range strings.SplitSeq(patterns, ",") {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("read a run: %w", err)
			}
			runs = append(runs, string(data))
		}
	}
	return runs, nil
}

// row is one line of the table.
type row struct {
	client, version string
	what            string
	one, three      string // patterns of the whole names of tests and subtests, on one node and on three; "" where nothing runs
	reference       bool   // on Kafka there is nothing to run: the test itself compares with it
}

// resultLine is the end of a test or a subtest.
var resultLine = regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// key names what was done by which version of a client.
func (r row) key() [3]string { return [3]string{r.client, r.version, r.what} }

// runs reports whether the row is that of a client of the matrix.
func (r row) runs(name string) bool {
	return regexp.MustCompile("^(?:" + r.one + ")$").MatchString("TestMatrix/" + name + "/one")
}

const notRun = "not run"

// ends says how often a test ended one way and the other.
type ends struct{ passed, failed int }

// result counts the tests that ended one way or the other, each as often as it ended in the last run that has it: a test that is
// skipped there is not in it, and one that a run repeats counts each time.
func result(tests string, runs []string) string {
	if tests == "" {
		return "–"
	}
	name := regexp.MustCompile("^(?:" + tests + ")$")
	last := map[string]ends{}
	for _, run := range runs {
		this := map[string]ends{}
		for _, m := range resultLine.FindAllStringSubmatch(run, -1) {
			if e := this[m[2]]; name.MatchString(m[2]) && m[1] != "SKIP" {
				if m[1] == "PASS" {
					e.passed++
				} else {
					e.failed++
				}
				this[m[2]] = e
			}
		}
		maps.Copy(last, this)
	}
	passed, failed := 0, 0
	for _, e := range last {
		passed += e.passed
		failed += e.failed
	}
	switch {
	case failed > 0:
		return fmt.Sprintf("%d of %d pass", passed, passed+failed)
	case passed > 0:
		return "pass"
	}
	return notRun
}

// versionsLine is what the matrix prints of a client: the APIs and versions that the broker saw.
var versionsLine = regexp.MustCompile(`(?m)API versions of (\S+): (.+)$`)

// versions gives for each client of the matrix, in the order of first appearance, what the broker saw: of several runs together.
func versions(runs []string) (names []string, seen map[string]map[string][]int) {
	seen = map[string]map[string][]int{}
	for _, m := range versionsLine.FindAllStringSubmatch(strings.Join(runs, "\n"), -1) {
		if seen[m[1]] == nil {
			names, seen[m[1]] = append(names, m[1]), map[string][]int{}
		}
		for part := range strings.SplitSeq(m[2], ", ") {
			api, list, _ := strings.Cut(part, " ")
			for v := range strings.SplitSeq(list, "+") {
				n, err := strconv.Atoi(v)
				if err == nil && !slices.Contains(seen[m[1]][api], n) {
					seen[m[1]][api] = append(seen[m[1]][api], n)
					slices.Sort(seen[m[1]][api])
				}
			}
		}
	}
	slices.Sort(names)
	return names, seen
}

func page(known document, kaja, kafka []string) string {
	var b strings.Builder
	b.WriteString("<!-- Written by \"make compatibility\" from the output of the tests; do not edit. -->\n\n# Compatibility\n\n" +
		"What ran against kaja, on one node that is killed and started again under the client, and on three of which one is killed (-9) in\n" +
		"the middle of its work, and how the same tests end on a real Kafka 4.4.0. \"compared\" means that the test runs the same command\n" +
		"lines against both and compares what they print. n/a: the client itself has no such thing.\n\n" +
		"| client or tool | version | what ran | kaja, one node | kaja, three nodes | Kafka 4.4, one node | Kafka 4.4, three nodes |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		cells := [4]string{result(r.one, kaja), result(r.three, kaja), result(r.one, kafka), result(r.three, kafka)}
		if r.reference {
			cells[2], cells[3] = "compared", "–"
		}
		for i := range cells {
			if known.has(r) && cells[i] == notRun {
				cells[i] = known.cells[r.key()][i]
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.client, r.version, r.what, strings.Join(cells[:], " | "))
	}
	b.WriteString("\n## API versions\nWhat kaja saw of each client of the matrix.\n\n| client | APIs and versions |\n|---|---|\n")
	names, seen := versions(kaja)
	lines := map[string]string{}
	for name, line := range known.versions {
		if slices.ContainsFunc(rows, func(r row) bool { return known.has(r) && r.runs(name) }) {
			lines[name] = line
		}
	}
	for _, name := range names {
		var parts []string
		for _, api := range slices.Sorted(maps.Keys(seen[name])) {
			var list []string
			for _, v := range seen[name][api] {
				list = append(list, strconv.Itoa(v))
			}
			parts = append(parts, api+" "+strings.Join(list, "+"))
		}
		lines[name] = strings.Join(parts, ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(&b, "| %s | %s |\n", name, lines[name])
	}
	return b.String()
}
