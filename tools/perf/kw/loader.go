package kw

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Line is the JSON line that a loader has printed.
type Line map[string]any

// Num is a number in it, found by the names that lead there; 0 if there is none.
func (l Line) Num(path ...string) float64 {
	var at any = map[string]any(l)
	for _, name := range path {
		m, _ := at.(map[string]any)
		at = m[name]
	}
	f, _ := at.(float64)
	return f
}

// Loader runs one of the loaders, whose binaries are in bin, for at most five minutes.
func Loader(ctx context.Context, bin, name string, args ...string) (Line, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(bin, name), args...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	var l Line
	return l, json.Unmarshal(out, &l)
}
