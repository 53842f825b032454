package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Seen says in which versions which APIs were asked for.
type Seen map[string][]int

// requestLine is a counter of requests, as kaja's metrics show it.
var requestLine = regexp.MustCompile(`(?m)^kaja_server_requests_total\{api="(\w+)",listener="` + clientsListener + `",version="(\d+)"\}`)

// AddSeen adds what the clients of each running node have asked for since it was started. Of a real Kafka it knows nothing.
func (c *Cluster) AddSeen(ctx context.Context, to Seen) error {
	for i, addr := range c.http {
		if !c.Nodes[i].running() {
			continue
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
		if err != nil {
			return fmt.Errorf("ask for metrics: %w", err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("ask for metrics: %w", err)
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return fmt.Errorf("read metrics: %w", err)
		}
		to.add(string(text))
	}
	return nil
}

func (s Seen) add(metrics string) {
	for _, m := range requestLine.FindAllStringSubmatch(metrics, -1) {
		version, err := strconv.Atoi(m[2])
		if err == nil && !slices.Contains(s[m[1]], version) {
			s[m[1]] = append(s[m[1]], version)
			slices.Sort(s[m[1]])
		}
	}
}

// String is "Fetch 11, Produce 7+9", in the order of the names.
func (s Seen) String() string {
	var out []string
	for _, name := range sortedSeen(s) {
		var versions []string
		for _, v := range s[name] {
			versions = append(versions, strconv.Itoa(v))
		}
		out = append(out, name+" "+strings.Join(versions, "+"))
	}
	return strings.Join(out, ", ")
}

func sortedSeen(s Seen) []string {
	var names []string
	for name := range s {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
