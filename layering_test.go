// Package kaja_test holds the tests of the module as a whole: who may import whom, and that every package says what it
// is for.
package kaja_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kajamq/kaja"

// pkg is what this test needs of `go list -json`.
type pkg struct {
	ImportPath   string
	Name         string
	Doc          string
	Imports      []string
	TestGoFiles  []string
	XTestGoFiles []string
	GoFiles      []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Imports,GoFiles,TestGoFiles,XTestGoFiles", "./...").Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}

// may lists, for each package of ours, the packages of ours that it may import. A trailing /... covers the package and
// everything below it. The order of the rows is the order of the layers; ARCHITECTURE.md explains it.
var may = []struct {
	pkg     string
	imports []string
}{
	{"internal/...", nil},
	{"vfs", nil},
	{"vfs/...", []string{"vfs", "internal/..."}},
	{"wire/...", []string{"wire/...", "internal/..."}},
	{"auth", []string{"wire/..."}},
	{"coord", []string{"wire/...", "internal/..."}},
	{"log", []string{"vfs", "wire/...", "internal/..."}},
	{"raftctl/image", []string{"wire/...", "internal/..."}},
	{"groupcoord/...", []string{"groupcoord/...", "coord", "raftctl/image", "wire/...", "internal/..."}},
	{"txn/...", []string{"txn/...", "coord", "raftctl/image", "wire/...", "internal/..."}},
	{"raftctl/raftstore", []string{"vfs", "internal/..."}},
	{"raftctl/peer", []string{"wire", "internal/..."}},
	{"raftctl", []string{"raftctl/...", "coord", "vfs", "wire/...", "internal/..."}},
	{"broker/config", []string{"wire"}},
	{"broker/purgatory", []string{"wire", "internal/..."}},
	{"broker/replica", []string{"broker/purgatory", "raftctl/image", "log", "coord", "vfs", "wire/...", "internal/..."}},
	{"broker/server", []string{"wire/...", "auth", "raftctl/peer", "broker/config", "internal/..."}},
	{"broker/peerclient", []string{"raftctl/peer", "wire/...", "internal/..."}},
	{"broker/control", []string{"broker/peerclient", "raftctl/...", "wire/...", "internal/..."}},
	{"broker/api", []string{"broker/server", "broker/control", "broker/replica", "broker/purgatory", "broker/config", "auth", "groupcoord/...", "txn/...", "raftctl/...", "coord", "log", "vfs", "wire/...", "internal/..."}},
	{"broker", []string{"broker/...", "auth", "groupcoord/...", "txn/...", "raftctl/...", "coord", "log", "vfs/...", "wire/...", "internal/..."}},
	{"sim/eos", []string{"wire/..."}},
	{"sim/history", []string{"wire"}},
	{"chaos/...", []string{"chaos/...", "sim/eos", "sim/history", "wire/...", "internal/..."}},
	{"sim/loop", []string{"broker/replica", "broker/purgatory", "groupcoord/...", "txn/...", "raftctl/...", "coord", "log", "vfs/...", "wire/...", "internal/..."}},
	{"sim", []string{"sim/eos", "sim/history", "broker/...", "auth", "groupcoord/...", "txn/...", "raftctl/...", "coord", "log", "vfs/...", "wire/...", "internal/..."}},
	{"cmd/...", []string{"..."}},
	{"compat-tests/...", []string{"..."}},
}

// denied are imports that a package must never have, with the reason.
var denied = []struct{ pkg, path, why string }{
	{"...", "log", "std log: use log/slog"},
	{"log", "net", "the log engine knows no network"},
	{"log", "os", "files go through vfs"},
	{"groupcoord/classic", "net", "pure core"},
	{"groupcoord/classic", "os", "pure core"},
	{"groupcoord/classic", "sync", "pure core"},
	{"groupcoord/offsets", "net", "pure core"},
	{"groupcoord/offsets", "os", "pure core"},
	{"groupcoord/offsets", "sync", "pure core"},
	{"txn/state", "net", "pure core"},
	{"txn/state", "os", "pure core"},
	{"txn/state", "sync", "pure core"},
	{"txn/state", "github.com/prometheus/client_golang/prometheus", "pure cores return counts, shells record them"},
	{"raftctl/image", "net", "pure core"},
	{"raftctl/image", "os", "pure core"},
	{"raftctl/image", "sync", "pure core"},
	{"raftctl/image", "github.com/prometheus/client_golang/prometheus", "pure cores return counts, shells record them"},
	{"groupcoord/classic", "github.com/prometheus/client_golang/prometheus", "pure cores return counts, shells record them"},
	{"groupcoord/offsets", "github.com/prometheus/client_golang/prometheus", "pure cores return counts, shells record them"},
}

func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == base || strings.HasPrefix(path, base+"/")
	}
	return path == pattern
}

func ours(path string) (string, bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func TestLayering(t *testing.T) {
	for _, p := range list(t) {
		name, _ := ours(p.ImportPath)
		if name == "." {
			continue
		}
		i := slices.IndexFunc(may, func(r struct {
			pkg     string
			imports []string
		}) bool {
			return matches(r.pkg, name)
		})
		if i < 0 {
			t.Errorf("%s: no row in the layering table: decide where it belongs (ARCHITECTURE.md)", name)
			continue
		}
		for _, imp := range p.Imports {
			if short, is := ours(imp); is && !slices.ContainsFunc(may[i].imports, func(m string) bool { return matches(m, short) }) {
				t.Errorf("%s must not import %s: it is not on a row above it (ARCHITECTURE.md)", name, short)
			}
			for _, d := range denied {
				if imp == "log" && name == "raftctl" {
					continue // hclog.Logger, which hashicorp/raft wants, has a method that returns a std logger
				}
				if imp == d.path && matches(d.pkg, name) {
					t.Errorf("%s must not import %s: %s", name, d.path, d.why)
				}
			}
			if strings.HasPrefix(imp, "github.com/hashicorp/raft") && name != "raftctl" && name != "raftctl/raftstore" {
				t.Errorf("%s must not import %s: only raftctl knows hashicorp/raft", name, imp)
			}
		}
	}
}

// TestPackageComments wants one package comment for each package, and more than a name in it.
func TestPackageComments(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		if len(p.Doc) < 40 {
			t.Errorf("%s: package comment missing or empty: say what it is for and what it does not do (doc.go)", p.ImportPath)
		}
	}
}
