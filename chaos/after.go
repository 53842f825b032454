//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
)

// endAll ends every node, all at once.
func (c *cluster) endAll() {
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		if n.running() {
			wg.Go(func() { _ = c.runs.end(n) })
		}
	}
	wg.Wait()
}

// sameLogs compares the bytes that the replicas of a topic hold. The nodes have ended, with everything in sync.
func (c *cluster) sameLogs(topic string) error {
	dirs := map[string][]int{} // partition: nodes
	for _, n := range c.nodes {
		found, err := filepath.Glob(filepath.Join(n.disk.Mount, "data", topic+"-*"))
		if err != nil {
			return err
		}
		for _, d := range found {
			dirs[filepath.Base(d)] = append(dirs[filepath.Base(d)], n.id)
		}
	}
	want := min(len(c.nodes), 3)
	if len(dirs) == 0 {
		return fmt.Errorf("no node has a partition of %s", topic)
	}
	for partition, on := range dirs {
		if len(on) != want {
			return fmt.Errorf("%s is on nodes %v, want %d of them", partition, on, want)
		}
		var first []byte
		for i, id := range on {
			data, err := wholeLog(filepath.Join(c.nodes[id-1].disk.Mount, "data", partition))
			if err != nil {
				return err
			}
			if i == 0 {
				first = data
			} else if !bytes.Equal(first, data) {
				return fmt.Errorf("the replicas of %s on nodes %d and %d differ: %d bytes and %d, the first difference at %d",
					partition, on[0], id, len(first), len(data), differ(first, data))
			}
		}
	}
	return nil
}

func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// wholeLog is what all segments hold, one after the other.
func wholeLog(dir string) ([]byte, error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	slices.Sort(segments)
	var all []byte
	for _, s := range segments {
		data, err := os.ReadFile(s)
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

// suspicious are lines of a log that no fault explains.
var suspicious = regexp.MustCompile(`^panic:|^fatal error:|BUG:|WARNING: DATA RACE`)

// panics looks for them.
func (c *cluster) panics(n *node) {
	f, err := os.Open(n.logName())
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }() // it was only read
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if suspicious.MatchString(line) {
			c.found("node %d says: %s", n.id, line)
			return
		}
		if err != nil {
			return // the end
		}
	}
}
