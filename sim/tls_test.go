package sim

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/internal/tlstest"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// certified lets a node prove itself by a certificate of ca instead of the secret, on listeners of its own for nodes.
func (n *Node) certified(ca *tlstest.CA) *Node {
	n.settings = append(n.settings, certificateSettings(ca, ca.Node([]string{n.host.name}))...)
	n.settings = append(n.settings, "listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9093",
		fmt.Sprintf("advertised.listeners=PLAINTEXT://%[1]s:9092,INTERNAL://%[1]s:9094,CONTROLLER://%[1]s:9093", n.host.name))
	return n
}

func certificateSettings(ca *tlstest.CA, p tlstest.Pair) []string {
	return []string{
		"kaja.cluster.secret=", "controller.listener.names=CONTROLLER", "inter.broker.listener.name=INTERNAL",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL", "ssl.client.auth=required",
		"ssl.keystore.type=PEM", "ssl.truststore.type=PEM", "ssl.truststore.certificates=" + string(ca.PEM()),
		"ssl.keystore.certificate.chain=" + string(p.Chain), "ssl.keystore.key=" + string(p.Key),
	}
}

// startCertified forms a cluster of three nodes without a secret.
func startCertified(t *testing.T, c *Cluster, ca *tlstest.CA) []*Node {
	t.Helper()
	nodes := c.Form(3)
	for _, n := range nodes {
		n.certified(ca)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.StartAll(ctx, nodes...); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// Three nodes that prove themselves by certificates alone are a cluster: they form, elect, replicate, and go on when the node that
// leads the quorum is killed, which comes back.
func TestNodesWithCertificates(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		startCertified(t, c, tlstest.NewCA(t, "nodes"))
		replicated(t, c, "t", 3, nil)
		cl, err := c.Client("client", kgo.DefaultProduceTopic("t"))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		const each = 50
		produced := 0
		produce := func() {
			t.Helper()
			for range each {
				if err := cl.ProduceSync(ctx, &kgo.Record{Value: fmt.Append(nil, produced)}).FirstErr(); err != nil {
					t.Fatalf("record %d: %v", produced, err)
				}
				produced++
			}
		}
		produce()
		if strings.Contains(c.Log.String(), "no secure connection to a node") {
			t.Errorf("a node could not speak with another:\n%s", c.Log)
		}
		for _, e := range c.registration(t, 1).Endpoints {
			if want := map[string]int16{"INTERNAL": 1, "PLAINTEXT": 0}[e.Listener]; e.Protocol != want {
				t.Errorf("listener %s is registered with security protocol %d, want %d", e.Listener, e.Protocol, want)
			}
		}
		leader := c.Controller(time.Minute)
		leader.Kill()
		produce()
		if err := leader.Start(ctx); err != nil {
			t.Fatal(err)
		}
		whole(t, c, "t", time.Minute)
		produce()
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
		reader, err := c.Client("reader", kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		seen := map[string]int{}
		for n := 0; n < produced; {
			fetches := reader.PollFetches(ctx)
			if err := fetches.Err0(); err != nil {
				t.Fatalf("%d of %d records: %v", n, produced, err)
			}
			fetches.EachRecord(func(r *kgo.Record) {
				seen[string(r.Value)]++
				n++
			})
		}
		if len(seen) != produced {
			t.Errorf("%d records are there, %d were acknowledged", len(seen), produced)
		}
	})
}

// sayTLS is say over TLS, to a server that is not checked: everything that comes back until the connection ends.
func sayTLS(t *testing.T, p *Process, addr string, cert *tls.Certificate, b []byte) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	raw, err := p.Dial(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()                                            // nothing was written that matters
	cfg := &tls.Config{InsecureSkipVerify: true, Time: time.Now} //nolint:gosec // a stranger does not care
	if cert != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil
	}
	_, _ = conn.Write(b)
	got, _ := io.ReadAll(conn)
	return got
}

// A stranger at the listeners of nodes that prove themselves by certificates gets nothing, whatever he says: in plain text, over TLS
// without a certificate, with one of another CA, with one that has expired. No byte of his reaches raft (X20).
func TestStrangerWithoutACertificate(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		ca, other := tlstest.NewCA(t, "nodes"), tlstest.NewCA(t, "others")
		nodes := startCertified(t, c, ca)
		awaitNodes(t, c, 3)
		awaitMembers(t, c, "1* 2* 3*", time.Minute)
		for i := range nodes {
			c.awaitFenced(t, wire.BrokerID(i+1), false, 10*time.Second)
		}
		leader := c.Controller(time.Minute)
		before := Digest(leader.controller().Image())
		wrong, expired := other.Node([]string{"n1"}).TLS(t), ca.Node([]string{"n1"}, tlstest.Expired).TLS(t)
		versions := kmsg.NewRequestFormatter().AppendRequest(nil, kmsg.NewPtrApiVersionsRequest(), 1)
		stranger := c.Net.Host("stranger").Boot()
		for _, n := range nodes {
			for _, port := range []string{":9093", ":9094"} {
				messages := [][]byte{versions}
				for _, m := range hostileMessages() {
					for _, opening := range [][]byte{nil, preamble(), halfHandshake()} {
						messages = append(messages, append(bytes.Clone(opening), m...))
					}
				}
				for i, m := range messages {
					for who, speak := range []func() []byte{
						func() []byte { return say(t, stranger, n.Name()+port, m) },
						func() []byte { return sayTLS(t, stranger, n.Name()+port, nil, m) },
						func() []byte { return sayTLS(t, stranger, n.Name()+port, &wrong, m) },
						func() []byte { return sayTLS(t, stranger, n.Name()+port, &expired, m) },
					} {
						if i == 0 {
							time.Sleep(2 * time.Second) // each is worth a line of its own
						}
						if got := speak(); len(got) > 0 {
							t.Errorf("stranger %d was sent %d bytes", who, len(got))
						}
					}
				}
			}
		}
		time.Sleep(5 * time.Second)
		if c.Controller(time.Nanosecond) != leader {
			t.Error("the leader is another one")
		}
		if got := Digest(leader.controller().Image()); got != before {
			t.Error("the metadata have changed")
		}
		for _, want := range []string{"does not speak TLS", "didn't provide a certificate", "comes from no CA in ssl.truststore", "renew the other side's certificate"} {
			if !strings.Contains(c.Log.String(), want) {
				t.Errorf("no node said %q:\n%s", want, c.Log)
			}
		}
	})
}

// A node with the secret and two with certificates are no cluster, and each side says why.
func TestSecretAndCertificatesDoNotMix(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		ca := tlstest.NewCA(t, "nodes")
		nodes := c.Form(3)
		for _, n := range nodes[1:] {
			n.certified(ca)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := c.StartAll(ctx, nodes...); err == nil {
			t.Fatal("all are up")
		}
		for _, n := range nodes {
			if n.broker != nil {
				t.Errorf("node %s is up", n.Name())
			}
		}
		for _, want := range []string{
			"err=\"the other side speaks TLS, and listener CONTROLLER is PLAINTEXT\"", "a node that does not speak TLS: its listeners for nodes must be SSL, too",
			"no secure connection to a node",
		} {
			if !strings.Contains(c.Log.String(), want) {
				t.Errorf("no node said %q", want)
			}
		}
	})
}

// A node joins by its certificate, without a secret, and is given a node.id; one of another CA is told what is wrong.
func TestJoinByCertificate(t *testing.T) {
	eachSeed(t, func(t *testing.T, seed uint64) {
		c := NewCluster(t, seed)
		ca, other := tlstest.NewCA(t, "nodes"), tlstest.NewCA(t, "others")
		nodes := startCertified(t, c, ca)
		awaitNodes(t, c, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		ask := func(by *tlstest.CA) (wire.BrokerID, error) {
			cfg, _, err := config.Load(config.Sources{Set: append(certificateSettings(by, by.Node([]string{"n4"})), "log.dirs=/empty",
				"listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9093", "controller.quorum.bootstrap.servers=n1:9093")})
			if err != nil {
				t.Fatal(err)
			}
			p := c.Net.Host("n4").Boot()
			return broker.JoinID(ctx, broker.Env{FS: memfs.New(time.Now), Dial: p.Dial, Wall: time.Now, Logger: slog.New(slog.DiscardHandler),
				Hostname: func() (string, error) { return "n4", nil }}, cfg)
		}
		if _, err := ask(other); err == nil || !strings.Contains(err.Error(), "comes from no CA in ssl.truststore") {
			t.Errorf("a node of another CA: %v", err)
		}
		cfg, err := nodes[0].config()
		if err != nil {
			t.Fatal(err)
		}
		at, cluster, err := broker.JoinToken(ctx, broker.Env{FS: nodes[0].Disk(), Dial: c.Net.Host("admin").Boot().Dial, Wall: time.Now,
			Logger: slog.New(slog.DiscardHandler), Hostname: func() (string, error) { return "n1", nil }}, cfg)
		if err != nil || at != "n1:9093" || cluster != nodes[0].Broker().ClusterID() {
			t.Errorf("a token for %s of cluster %s: %v", at, cluster, err)
		}
		id, err := ask(ca)
		if err != nil || id != 4 {
			t.Fatalf("node.id %d was given: %v", id, err)
		}
		joiner := c.Joiner(int(id), nodes[:1]).certified(ca)
		if err := joiner.Start(ctx); err != nil {
			t.Fatal(err)
		}
		c.awaitFenced(t, 4, false, 10*time.Second)
	})
}
