package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
)

// grown is a cluster that began as one node and was joined by two.
func grown(t *testing.T, seed uint64) (*Cluster, []*Node) {
	t.Helper()
	c := NewCluster(t, seed)
	nodes := c.Form(1, controllersOnly...)
	mustStart(t, nodes[0])
	for id := 2; id <= 3; id++ {
		n := c.Joiner(id, nodes[:1], controllersOnly...)
		mustStart(t, n)
		nodes = append(nodes, n)
	}
	return c, nodes
}

// A node joins by any member, also by one that founded nothing and was not started again since, while the founder is down.
func TestJoinsByWhoeverHasJoined(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes := grown(t, seed)
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
		mustStart(t, c.Joiner(4, nodes[1:2], controllersOnly...))
		nodes[0].Kill()
		mustStart(t, c.Joiner(5, nodes[2:], controllersOnly...))
	})
}

func mustStart(t *testing.T, n *Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := n.Start(ctx); err != nil {
		t.Fatal(err)
	}
}

// A node that runs alone is joined by two others. They follow without a vote, and get one together: never are there two
// voters in between that depend on each other for longer than the step takes.
func TestJoinedNodesVoteOnceTheyAreStable(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		if err := joinTwo(t, c); err != nil {
			t.Fatal(err)
		}
		for id := 4; id <= 5; id++ {
			mustStart(t, c.Joiner(id, c.nodes[:1], controllersOnly...))
		}
		awaitMembers(t, c, "1* 2* 3* 4* 5*", time.Minute)
		c.nodes[0].Kill()
		c.nodes[1].Kill()
		if c.Controller(10*time.Second) == nil {
			t.Fatal("nobody leads three of five voters")
		}
	})
}

// joinTwo lets two nodes join one, and says what is wrong with the votes that they are given.
func joinTwo(t *testing.T, c *Cluster) error {
	t.Helper()
	nodes := c.Form(1, controllersOnly...)
	mustStart(t, nodes[0])
	mustStart(t, c.Joiner(2, nodes, controllersOnly...))
	time.Sleep(time.Minute)
	if err := becomeMembers(t, c, "1* 2", time.Second); err != nil { // two voters would be weaker than one
		return err
	}
	mustStart(t, c.Joiner(3, nodes, controllersOnly...))
	if err := becomeMembers(t, c, "1* 2 3", time.Second); err != nil {
		return err
	}
	time.Sleep(5 * time.Second)
	if err := becomeMembers(t, c, "1* 2 3", time.Second); err != nil {
		return err
	}
	return becomeMembers(t, c, "1* 2* 3*", 15*time.Second)
}

// A node whose disk was wiped comes back as another one: it follows without a vote, whatever voice its old self has, and
// takes its place once it is stable (C11).
func TestWipedProcessIsNoSilentVoter(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes := grown(t, seed)
		if err := wipeOne(t, c, nodes); err != nil {
			t.Fatal(err)
		}
		nodes[0].Kill()
		if c.Controller(10*time.Second) == nil {
			t.Fatal("the node that came back does not count")
		}
	})
}

// wipeOne wipes the last of three nodes, and says what is wrong with its vote.
func wipeOne(t *testing.T, c *Cluster, nodes []*Node) error {
	t.Helper()
	awaitMembers(t, c, "1* 2* 3*", time.Minute)
	nodes[2].Kill()
	nodes[2].disk = memfs.New(time.Now)
	mustStart(t, nodes[2])
	if err := becomeMembers(t, c, "1* 2* 3 3*", time.Second); err != nil {
		return err
	}
	members, err := c.Controller(time.Minute).controller().Members()
	if err != nil {
		return err
	}
	for _, m := range members {
		if own := nodes[2].broker.DirectoryID(); m.ID.NodeID == 3 && m.Voter == (m.ID.DirectoryID == own) {
			return fmt.Errorf("the wiped node's directory is %s, and %s votes: %v", own, m.ID, m.Voter)
		}
	}
	return becomeMembers(t, c, "1* 2* 3*", time.Minute)
}

// A node that answers but does not catch up, because its disk hangs, is given no vote before it has.
func TestNodeThatIsBehindIsNotPromoted(t *testing.T) {
	if !locksMayWait {
		t.Skip("needs the tag sim: a disk hangs while locks are held")
	}
	eachSeed(t, func(t *testing.T, seed uint64) {
		if err := joinBehind(t, NewCluster(t, seed)); err != nil {
			t.Fatal(err)
		}
	})
}

// joinBehind lets two nodes join one, of which the second hangs, and says what is wrong with its vote.
func joinBehind(t *testing.T, c *Cluster) error {
	t.Helper()
	nodes := c.Form(1, controllersOnly...)
	mustStart(t, nodes[0])
	mustStart(t, c.Joiner(2, nodes, controllersOnly...))
	third := c.Joiner(3, nodes, controllersOnly...)
	var disk *faultfs.FS
	third.FaultyDisk(func(fs *faultfs.FS) { disk = fs })
	mustStart(t, third)
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	defer release()
	disk.Add(faultfs.Rule{Op: faultfs.OpSync, Hang: hang})
	for i := range 60 {
		value := fmt.Sprint(1000000 + i)
		_, err := nodes[0].controller().AlterConfigs(t.Context(), []raftctl.AlterConfigs{{
			Resource: image.Resource{Type: image.ResourceBroker}, Changes: []raftctl.ConfigChange{{Name: "log.retention.ms", Value: &value}}}}, false)
		if err != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err := becomeMembers(t, c, "1* 2 3", time.Second); err != nil {
		return err
	}
	release()
	return becomeMembers(t, c, "1* 2* 3*", 20*time.Second)
}

// A second process under the id of one that runs is refused, whatever its disk.
func TestNodeIDInUseIsRefused(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c, nodes := grown(t, seed)
		twin := c.Node("twin", append([]string{"node.id=3", clusterSecret, "controller.quorum.bootstrap.servers=n1:9093"}, controllersOnly...)...)
		twin.formed = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := twin.Start(ctx)
		if err == nil || !strings.Contains(err.Error(), "has node.id 3 too") {
			t.Fatalf("the twin of node 3: %v", err)
		}
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
		_ = nodes
	})
}

// Two nodes of a cluster that never was, and one of an old cluster with the same secret: the old one is not rolled back to
// what the fresh ones know, and they do not begin another cluster without it. A node with data of another cluster is not
// let in (C12).
func TestFreshMajorityDoesNotReplaceAnOldMinority(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, controllersOnly...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		old := nodes[0].broker.ClusterID()
		for _, n := range nodes {
			n.Kill()
		}
		for _, n := range nodes[1:] {
			n.disk = memfs.New(time.Now)
		}
		brief, end := context.WithTimeout(t.Context(), 30*time.Second)
		defer end()
		if err := c.StartAll(brief, nodes...); err == nil {
			t.Fatal("two wiped nodes of three made a quorum")
		}
		for _, n := range nodes[1:] {
			if got := clusterOnDisk(t, n); got != old && got != "" {
				t.Errorf("node %s went over to cluster %q, the old one is %q", n.Name(), got, old)
			}
		}
	})
}

// clusterOnDisk is the cluster id that a stopped node has written down; "" for none.
func clusterOnDisk(t *testing.T, n *Node) string {
	t.Helper()
	f, err := n.disk.Open("/data/meta.properties")
	if err != nil {
		return ""
	}
	defer f.Close() // read only
	b := make([]byte, 1024)
	k, _ := f.ReadAt(b, 0)
	_, rest, ok := strings.Cut(string(b[:k]), "cluster.id=")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "\n")
	return id
}

// Nodes that join at the same moment without a node.id, at different nodes of the cluster, are given different ones; one that
// was given and not used is free again after a while.
func TestJoinersAtTheSameMomentGetDifferentIDs(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, controllersOnly...)
		awaitNodes(t, c, 3)
		ids := make([]int, 5)
		ask := func(i int) {
			cfg, _, err := config.Load(config.Sources{Set: []string{clusterSecret, "log.dirs=/empty",
				fmt.Sprintf("controller.quorum.bootstrap.servers=%s:9093", nodes[i%3].Name())}})
			if err != nil {
				t.Error(err)
				return
			}
			p := c.Net.Host(fmt.Sprintf("joiner-%d", i)).Boot()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			id, err := broker.JoinID(ctx, broker.Env{FS: memfs.New(time.Now), Dial: p.Dial, Hostname: func() (string, error) { return "joiner", nil }, Logger: slog.New(slog.DiscardHandler)}, cfg)
			if err != nil {
				t.Error(err)
			}
			ids[i] = int(id)
		}
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() { ask(i) })
		}
		wg.Wait()
		slices.Sort(ids)
		if !slices.Equal(ids, []int{4, 5, 6, 7, 8}) {
			t.Errorf("the ids %v were given", ids)
		}
		time.Sleep(time.Minute)
		if ask(0); ids[0] != 4 {
			t.Errorf("node.id %d was given, and 4 is free again", ids[0])
		}
	})
}

// A node that is to join, and cannot reach the node that leads at the address which the others name, says while it waits and when it
// gives up whom it could not reach.
func TestJoinerSaysThatItCannotReachTheLeader(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := startThree(t, c, controllersOnly...)
		awaitNodes(t, c, 3)
		leader := c.Controller(time.Minute)
		other := nodes[0]
		if other == leader {
			other = nodes[1]
		}
		cfg, _, err := config.Load(config.Sources{Set: []string{clusterSecret, "log.dirs=/empty",
			fmt.Sprintf("controller.quorum.bootstrap.servers=%s:9093", other.Name())}})
		if err != nil {
			t.Fatal(err)
		}
		p := c.Net.Host("joiner").Boot()
		c.Net.Cut("joiner", leader.Name())
		var lines strings.Builder
		env := broker.Env{FS: memfs.New(time.Now), Dial: p.Dial, Hostname: func() (string, error) { return "joiner", nil },
			Logger: slog.New(slog.NewTextHandler(&lines, nil))}
		at := leader.Name() + ":9093"
		for what, end := range map[string]time.Duration{"gives up": 10 * time.Minute, "is interrupted": 12 * time.Second} {
			lines.Reset()
			ctx, cancel := context.WithCancel(t.Context())
			stop := time.AfterFunc(end, cancel)
			began := time.Now()
			_, err = broker.JoinID(ctx, env, cfg)
			took := time.Since(began)
			stop.Stop()
			cancel()
			if most := min(end, time.Minute); took > most {
				t.Errorf("%s: it has taken %v", what, took)
			}
			e, ok := errors.AsType[*broker.StartError](err)
			if !ok || !strings.Contains(e.Err.Error(), at) || strings.Contains(e.Err.Error(), "nobody leads") || !strings.Contains(e.Todo, at) {
				t.Errorf("%s: the error does not say that %s cannot be reached: %v, %+v", what, at, err, e)
			}
			if n := strings.Count(lines.String(), at); n == 0 || strings.Count(lines.String(), "\n") > 3 {
				t.Errorf("%s: it says while it waits:\n%s", what, lines.String())
			}
		}
	})
}
