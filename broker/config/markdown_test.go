package config

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write docs/config.md instead of comparing it")

func TestConfigDocIsCurrent(t *testing.T) {
	const name = "../../docs/config.md"
	if *update {
		if err := os.WriteFile(name, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != Markdown() {
		t.Errorf("%s does not match the tables; run: make gen", name)
	}
}
