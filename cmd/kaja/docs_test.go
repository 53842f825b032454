package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDocsAreCurrent(t *testing.T) {
	for name, want := range generatedDocs() {
		got, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want {
			t.Errorf("docs/%s does not match its table; run: go run ./cmd/kaja docs docs", name)
		}
	}
}
