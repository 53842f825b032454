package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Long work says how far it is: on a terminal on one line that is drawn again, elsewhere on a line each ten seconds. Short work says
// nothing.
func TestProgress(t *testing.T) {
	for name, tt := range map[string]struct {
		terminal bool
		seconds  int
		drawn    int
		want     string
	}{
		"short":              {false, 9, 0, ""},
		"long":               {false, 25, 2, "1000 records consumed, 1.0 MB, 100 a second\n2000 records consumed, 2.0 MB, 100 a second\n"},
		"short, on terminal": {true, 0, 0, ""},
		"long, on terminal":  {true, 3, 15, "\r\x1b[K300 records consumed, 0.3 MB, 100 a second\r\x1b[K"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				p := newTally(&out, tt.terminal, "records consumed")
				for range tt.seconds * 100 {
					time.Sleep(10 * time.Millisecond)
					p.add(1, 1000)
				}
				p.clear()
				got := out.String()
				if lines := strings.Count(got, "a second"); lines != tt.drawn || !strings.HasSuffix(got, tt.want) {
					t.Errorf("%d lines, want %d, in\n%q", lines, tt.drawn, got)
				}
			})
		})
	}
}
