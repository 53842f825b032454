package kaja_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notServed are rows of things that kaja does not do, or that are shown elsewhere (docs/limits.md).
var notServed = map[string]bool{"R20": true, "R23": true}

// field is the numbers of the cases from the field that are about something which kaja has.
var field = []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29, 31, 32, 35, 38, 40, 41, 44, 46, 47, 50, 52, 53, 55, 56, 58, 59}

// TestScenariosDocIsTrue holds docs/scenarios.md against the code: every row of R, C, P, T and B names tests, and they exist.
func TestScenariosDocIsTrue(t *testing.T) {
	text, err := os.ReadFile("docs/scenarios.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if m := regexp.MustCompile(`^\| ([RCPTB]\d+) \|`).FindStringSubmatch(line); m != nil {
			rows[m[1]] = line
		}
	}
	name := regexp.MustCompile("`([a-z/-]+)\\.(Test\\w+)`")
	var ids []string
	for kind, n := range map[string]int{"R": 25, "C": 20, "P": 11, "T": 16} {
		for i := 1; i <= n; i++ {
			ids = append(ids, fmt.Sprintf("%s%d", kind, i))
		}
	}
	for _, n := range field {
		ids = append(ids, fmt.Sprintf("B%02d", n))
	}
	for _, id := range ids {
		tests := name.FindAllStringSubmatch(rows[id], -1)
		if len(tests) == 0 && !notServed[id] {
			t.Errorf("%s: no test is named", id)
		}
		for _, m := range tests {
			if !declared(t, m[1], m[2]) {
				t.Errorf("%s: there is no %s in %s", id, m[2], m[1])
			}
		}
	}
}

func declared(t *testing.T, dir, test string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(src), "func "+test+"(") {
			return true
		}
	}
	return false
}
