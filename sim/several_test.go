package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
)

// members describes the quorum as n knows it: node ids, those of voters with a star, in order; twice if a node has two lives.
func members(t *testing.T, n *Node) string {
	t.Helper()
	m, err := n.controller().Members()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, one := range m {
		text := fmt.Sprint(one.ID.NodeID)
		if one.Voter {
			text += "*"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// awaitMembers waits until the node that leads knows these members.
func awaitMembers(t *testing.T, c *Cluster, want string, d time.Duration) {
	t.Helper()
	if err := becomeMembers(t, c, want, d); err != nil {
		t.Fatal(err)
	}
}

// becomeMembers is awaitMembers with an error. The members are seen twice, since the leader tells them before they are committed: if it
// dies then, those before count.
func becomeMembers(t *testing.T, c *Cluster, want string, d time.Duration) error {
	t.Helper()
	got, seen := "", 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		n := c.Controller(time.Minute)
		if n == nil {
			continue
		}
		if got = members(t, n); got != want {
			seen = 0
		} else if seen++; seen == 2 {
			return nil
		}
	}
	return fmt.Errorf("the members are %q after %v, want %q", got, d, want)
}

// Controllers alone form a cluster, survive the loss of one and a power cut of all, and know each other afterwards.
func TestControllersAloneFormACluster(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, controllersOnly...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		awaitMembers(t, c, "1* 2* 3*", 10*time.Second)
		awaitNodes(t, c, 3)
		leader := c.Controller(10 * time.Second)
		leader.Kill()
		if c.Controller(10*time.Second) == nil {
			t.Fatal("nobody leads after the leader was killed")
		}
		if err := leader.Start(ctx); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			n.PowerOff(memfs.Lose, seed)
		}
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		awaitMembers(t, c, "1* 2* 3*", 10*time.Second)
	})
}

// awaitNodes waits until the metadata say where n nodes are.
func awaitNodes(t *testing.T, c *Cluster, n int) {
	t.Helper()
	known := 0
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		known = 0
		for range c.Controller(time.Minute).controller().Image().Nodes() {
			known++
		}
		if known == n {
			return
		}
	}
	t.Fatalf("the metadata know where %d nodes are, want %d", known, n)
}
