package broker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kajamq/kaja/broker/config"
)

// A server property that is called enforced is read somewhere: by its name, by that of a property it is a synonym of,
// or as the default of a topic config that is enforced.
func TestEnforcedSettingsAreRead(t *testing.T) {
	read := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != ".." || d.Name() == "compat-tests" || d.Name() == "tools"):
			return filepath.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		case strings.Contains(name, "broker/config/defs_") || strings.HasSuffix(name, "broker/config/topic_defs.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					read[s] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, def := range config.TopicDefs() {
		if def.Status == config.Enforced {
			for _, s := range def.Synonyms {
				read[s.Name] = true
			}
		}
	}
	for _, def := range config.ServerDefs() {
		if read[def.Name] {
			for _, s := range def.Synonyms {
				read[s.Name] = true
			}
		}
	}
	for _, def := range config.ServerDefs() {
		if def.Status == config.Enforced && !read[def.Name] {
			t.Errorf("%s is called enforced, and nobody reads it", def.Name)
		}
	}
}
