package sim

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/internal/tlstest"
	"github.com/twmb/franz-go/pkg/kadm"
)

// recoverNode runs `kaja node recover` on a stopped node's machine.
func recoverNode(t *testing.T, n *Node, force bool) (string, error) {
	t.Helper()
	cfg, err := n.config()
	if err != nil {
		t.Fatal(err)
	}
	p := n.host.Boot()
	defer n.host.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return broker.Recover(ctx, broker.Env{
		FS: n.disk, Listen: p.Listen, Dial: p.Dial, Wall: time.Now, Seed: 1, Logger: n.logger,
		Hostname: func() (string, error) { return n.host.name, nil },
	}, cfg, force)
}

// Two of three voters are lost for good. The recovery is refused while a majority could answer, says what may be lost,
// changes nothing before it is forced to, and makes a quorum of one that the lost nodes cannot come back to as they were,
// and can as new ones (C14).
func TestQuorumIsRecoveredByForce(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, controllersOnly...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		awaitNodes(t, c, 3)
		epoch := c.Controller(time.Minute).controller().Image().ControllerEpoch()
		nodes[0].Kill()
		if _, err := recoverNode(t, nodes[0], true); err == nil || !strings.Contains(err.Error(), "it is not lost") {
			t.Fatalf("with two voters alive: %v", err)
		}
		nodes[1].Kill()
		if _, err := recoverNode(t, nodes[0], true); err == nil || !strings.Contains(err.Error(), "these answer: 3") {
			t.Fatalf("with one voter alive besides this one: %v", err)
		}
		nodes[2].Kill()
		text, err := recoverNode(t, nodes[0], false)
		if err == nil || !strings.Contains(text, "is lost") || !strings.Contains(text, "none but these answer: nobody") {
			t.Fatalf("without force: %v, %q", err, text)
		}
		brief, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		if err := nodes[0].Start(brief); err == nil {
			t.Fatal("one of three voters is a quorum before it was recovered")
		}
		if text, err = recoverNode(t, nodes[0], true); err != nil || !strings.Contains(text, "the only voter") {
			t.Fatalf("by force: %v, %q", err, text)
		}
		mustStart(t, nodes[0])
		awaitMembers(t, c, "1*", time.Second)
		img := nodes[0].controller().Image()
		if img.ControllerEpoch() <= epoch || img.ClusterID() != nodes[0].broker.ClusterID() {
			t.Errorf("controller epoch %d after %d", img.ControllerEpoch(), epoch)
		}
		old, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := nodes[1].Start(old); err == nil || !strings.Contains(err.Error(), "recovered by force") {
			t.Fatalf("a lost node came back as it was: %v", err)
		}
		for _, n := range nodes[1:] {
			n.wipe()
			mustStart(t, n)
		}
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
	})
}

// A voter that runs and does not prove itself to this node is not lost: it may be one of a majority that goes on. The recovery is
// refused, and says where somebody is (C14).
func TestVotersThatRunAreNotLost(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		certified  bool   // by certificates, of which those of the others run out
		own        string // one more setting of this node at the recovery
	}{
		{"certificates that have expired", "certificate has expired", true, ""},
		{"another secret", "read proof", false, "kaja.cluster.secret=the secret of another day"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eachSeed(t, func(t *testing.T, seed uint64) {
				c := NewCluster(t, seed)
				nodes := c.Form(3)
				if tt.certified {
					ca := tlstest.NewCA(t, "nodes")
					for _, n := range nodes {
						n.certified(ca)
					}
					for _, n := range nodes[1:] {
						n.settings = append(n.settings, certificateSettings(ca, ca.Node([]string{n.host.name}, func(c *x509.Certificate) {
							c.NotAfter = time.Now().Add(time.Minute)
						}))...)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				if err := c.StartAll(ctx, nodes...); err != nil {
					t.Fatal(err)
				}
				awaitMembers(t, c, "1* 2* 3*", 20*time.Second)
				nodes[0].Kill()
				time.Sleep(2 * time.Minute)
				if tt.own != "" {
					nodes[0].settings = append(nodes[0].settings, tt.own)
				}
				text, err := recoverNode(t, nodes[0], true)
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "somebody is at n2:") {
					t.Errorf("recovered while two voters run: %v, %q", err, text)
				}
				nodes[1].Kill()
				nodes[2].Kill()
				if _, err := recoverNode(t, nodes[0], true); err != nil {
					t.Errorf("not recovered, though nobody is there: %v", err)
				}
			})
		})
	}
}

// A node that joined while the node was away whose metadata were recovered: the recovery knows nothing of it, and its own metadata go
// on where those end, in terms that the recovered quorum would have used next. It is refused, so that neither history gets into the
// other and what only it has is not written over; emptied it joins (C14).
func TestNodeThatARecoveryNeverKnew(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		nodes := c.Form(3, controllersOnly...)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			n.apart = true
		}
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
		stale := c.Controller(time.Minute)
		stale.Kill()
		c.Controller(time.Minute)
		live := slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n == stale })
		unknown := c.Joiner(4, live)
		mustStart(t, unknown)
		c.awaitFenced(t, 4, false, time.Minute)
		create := func(topics ...string) {
			cl, err := c.Client("creator-of-" + topics[0])
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			res, err := kadm.NewClient(cl).CreateTopics(ctx, 1, 1, nil, topics...)
			if err == nil {
				err = res.Error()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		create("of-the-majority", "of-the-majority-2")
		for _, n := range append(live, unknown) {
			n.Kill()
		}
		if _, err := recoverNode(t, stale, true); err != nil {
			t.Fatal(err)
		}
		mustStart(t, stale)
		other := c.Joiner(5, []*Node{stale})
		mustStart(t, other)
		c.awaitFenced(t, 5, false, time.Minute)
		topics := []string{"of-the-recovered"}
		for i := range 30 {
			topics = append(topics, fmt.Sprint("of-the-recovered-", i))
		}
		create(topics...)
		unknown.settings = append(unknown.settings, "controller.quorum.bootstrap.servers="+stale.Name()+":9093")
		brief, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		err := unknown.Start(brief)
		if err == nil {
			time.Sleep(10 * time.Second)
			t.Logf("%s; %s", stale.Name(), members(t, stale))
			_, late := unknown.controller().Image().Topic("of-the-majority")
			_, recovered := unknown.controller().Image().Topic("of-the-recovered")
			t.Errorf("it was taken in: it has a topic of the majority %v, of the recovered quorum %v; its metadata are %s, those of the quorum %s", late, recovered,
				Digest(unknown.controller().Image()), Digest(stale.controller().Image()))
		} else if !strings.Contains(err.Error(), "recovered by force") {
			t.Errorf("it is refused with %v", err)
		}
		if err == nil {
			return
		}
		if m := members(t, stale); strings.Contains(m, "4") {
			t.Errorf("the members are %s", m)
		}
		unknown.wipe()
		mustStart(t, unknown)
		c.awaitFenced(t, 4, false, time.Minute)
		if got, want := Digest(unknown.controller().Image()), Digest(stale.controller().Image()); got != want {
			t.Errorf("its metadata are %s, those of the quorum %s", got, want)
		}
	})
}
