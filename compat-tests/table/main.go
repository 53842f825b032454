// Command table turns what the compatibility tests printed into docs/compatibility.md: which client, in which version, did what,
// and how it ended on kaja and on Kafka 4.4. "make compat" and "make clients" leave their output in build/ and run it.
//
//	table -kaja build/compat-kaja.txt,build/clients-kaja.txt -kafka build/compat-kafka.txt,build/clients-kafka.txt
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	kaja := flag.String("kaja", "", "`files` with the output of the tests on kaja, separated by commas")
	kafka := flag.String("kafka", "", "the same on Kafka 4.4")
	flag.Parse()
	fmt.Print(page(read(*kaja), read(*kafka)))
}

// read joins files; one that is not there was not run.
func read(names string) string {
	var out strings.Builder
	for name := range strings.SplitSeq(names, ",") {
		if data, err := os.ReadFile(name); err == nil {
			out.Write(data)
		}
	}
	return out.String()
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

// result counts the tests that ended one way or the other.
func result(tests, output string) string {
	if tests == "" {
		return "–"
	}
	name := regexp.MustCompile("^(?:" + tests + ")$")
	passed, failed := 0, 0
	for _, m := range resultLine.FindAllStringSubmatch(output, -1) {
		switch {
		case !name.MatchString(m[2]):
		case m[1] == "PASS":
			passed++
		case m[1] == "FAIL":
			failed++
		}
	}
	switch {
	case failed > 0:
		return fmt.Sprintf("%d of %d pass", passed, passed+failed)
	case passed > 0:
		return "pass"
	}
	return "not run"
}

// versionsLine is what the matrix prints of a client: the APIs and versions that the broker saw.
var versionsLine = regexp.MustCompile(`(?m)API versions of (\S+): (.+)$`)

// versions gives for each client of the matrix, in the order of first appearance, what the broker saw: of several runs together.
func versions(output string) (names []string, seen map[string]map[string][]int) {
	seen = map[string]map[string][]int{}
	for _, m := range versionsLine.FindAllStringSubmatch(output, -1) {
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

func page(kaja, kafka string) string {
	var b strings.Builder
	b.WriteString("<!-- Written by \"make compatibility\" from the output of the tests; do not edit. -->\n\n# Compatibility\n\n" +
		"What ran against kaja, on one node that is killed and started again under the client, and on three of which one is killed (-9) in\n" +
		"the middle of its work, and how the same tests end on a real Kafka 4.4.0. \"compared\" means that the test runs the same command\n" +
		"lines against both and compares what they print. n/a: the client itself has no such thing.\n\n" +
		"| client or tool | version | what ran | kaja, one node | kaja, three nodes | Kafka 4.4, one node | Kafka 4.4, three nodes |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		one, three := result(r.one, kafka), result(r.three, kafka)
		if r.reference {
			one, three = "compared", "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", r.client, r.version, r.what, result(r.one, kaja), result(r.three, kaja), one, three)
	}
	b.WriteString("\n## API versions\nWhat kaja saw of each client of the matrix.\n\n| client | APIs and versions |\n|---|---|\n")
	names, seen := versions(kaja)
	for _, name := range names {
		var parts []string
		for _, api := range slices.Sorted(maps.Keys(seen[name])) {
			var list []string
			for _, v := range seen[name][api] {
				list = append(list, strconv.Itoa(v))
			}
			parts = append(parts, api+" "+strings.Join(list, "+"))
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(parts, ", "))
	}
	return b.String()
}
