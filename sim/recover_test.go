package sim

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/internal/tlstest"
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
