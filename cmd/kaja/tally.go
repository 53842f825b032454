package main

import (
	"fmt"
	"io"
	"time"
)

// Progress of long work: redrawn on a terminal, else a line now and then.
const (
	redrawEvery = 200 * time.Millisecond
	lineEvery   = 10 * time.Second
)

// tally counts what a long command has done and says so on standard error. Work shorter than one interval says
// nothing. Not safe for concurrent use.
type tally struct {
	w        io.Writer
	terminal bool
	noun     string // "records produced"
	began    time.Time
	last     time.Time
	drawn    bool
	records  int64
	bytes    int64
}

func newTally(w io.Writer, terminal bool, noun string) *tally {
	now := time.Now()
	return &tally{w: w, terminal: terminal, noun: noun, began: now, last: now}
}

func (p *tally) add(records int64, bytes int) {
	p.records, p.bytes = p.records+records, p.bytes+int64(bytes)
	every := lineEvery
	if p.terminal {
		every = redrawEvery
	}
	if now := time.Now(); now.Sub(p.last) >= every {
		p.last = now
		p.draw()
	}
}

func (p *tally) draw() {
	text := fmt.Sprintf("%d %s, %.1f MB, %.0f a second", p.records, p.noun, float64(p.bytes)/1e6, p.rate())
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	p.drawn = true
	_, _ = fmt.Fprintf(p.w, "\r\x1b[K%s", text)
}

func (p *tally) rate() float64 {
	return float64(p.records) / max(time.Since(p.began).Seconds(), 1e-3)
}

// clear takes the line off the terminal.
func (p *tally) clear() {
	if p.drawn {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
}
