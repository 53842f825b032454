package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/internal/tlstest"
	"github.com/kajamq/kaja/wire"
)

// tlsOptions are those of a node of ca whose certificate is p.
func tlsOptions(ca *tlstest.CA, p tlstest.Pair, edit ...func(*TLSOptions)) TLSOptions {
	o := TLSOptions{Certificate: p.Chain, Key: p.Key, Trust: ca.PEM(), ClientAuth: tls.RequireAndVerifyClientCert,
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, CheckNames: true, Wall: time.Now}
	for _, e := range edit {
		e(&o)
	}
	return o
}

func newTLS(t testing.TB, o TLSOptions) *TLS {
	t.Helper()
	s, err := NewTLS(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func proven(t testing.TB, node int32, c Credentials) *Identity {
	t.Helper()
	i, err := c.Identity(ID{ClusterID: "c", NodeID: wire.BrokerID(node), DirectoryID: wire.UUID{15: byte(node)}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// meet connects two nodes over the loopback, each by its credentials, and runs the whole handshake.
func meet(t *testing.T, dials, accepts Credentials, host string) (log string, dErr, aErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the test is over
	done := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer raw.Close() // it has been read
		conn := net.Conn(raw)
		if accepts.TLS != nil {
			s := accepts.TLS.Server(raw)
			conn, err = s, s.Handshake()
		}
		if err == nil {
			_, _, err = proven(t, 2, accepts).Accept(conn, admitAll)
		}
		_ = raw.(*net.TCPConn).CloseWrite()
		done <- err
		_, _ = io.Copy(io.Discard, raw)
	}()
	var lines bytes.Buffer
	at := l.Addr().String()
	_, port, _ := net.SplitHostPort(at)
	dial := dials.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, at)
	}, slog.New(slog.NewTextHandler(&lines, nil)))
	conn, dErr := dial(t.Context(), "tcp", net.JoinHostPort(host, port))
	if dErr == nil {
		_, dErr = proven(t, 1, dials).Dial(conn, Raft, anybody)
		_ = conn.Close()
	}
	aErr = <-done
	return lines.String(), dErr, aErr
}

// Nodes whose certificates come from one CA are nodes to each other, with each version of TLS, with a secret besides and without.
func TestCertificatesAreAProof(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		only := func(o *TLSOptions) { o.MinVersion, o.MaxVersion = version, version }
		for _, s := range []string{"", secret} {
			a := Credentials{Secret: []byte(s), TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"a"}), only))}
			b := Credentials{Secret: []byte(s), TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"b", "127.0.0.1"})))}
			for _, host := range []string{"b", "127.0.0.1"} {
				if log, dErr, aErr := meet(t, a, b, host); dErr != nil || aErr != nil || log != "" {
					t.Errorf("version %x, secret %q, to %s: %v, %v, said %q", version, s, host, dErr, aErr, log)
				}
			}
		}
	}
}

// With a secret TLS may do without certificates of those who dial; the secret then is bound to the connection.
func TestSecretOverTLS(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	for _, auth := range []tls.ClientAuthType{tls.NoClientCert, tls.VerifyClientCertIfGiven} {
		with := func(s string) Credentials {
			return Credentials{Secret: []byte(s), TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"b"}), func(o *TLSOptions) { o.ClientAuth = auth }))}
		}
		if _, dErr, aErr := meet(t, with(secret), with(secret), "b"); dErr != nil || aErr != nil {
			t.Errorf("the same secret: %v, %v", dErr, aErr)
		}
		for name, pair := range map[string][2]string{"another secret": {secret, secret + "."}, "none here": {"", secret}, "none there": {secret, ""}} {
			if _, dErr, aErr := meet(t, with(pair[0]), with(pair[1]), "b"); dErr == nil || aErr == nil || !errors.Is(errors.Join(dErr, aErr), ErrHandshake) {
				t.Errorf("%s: %v, %v", name, dErr, aErr)
			}
		}
	}
}

// Somebody in the middle, who has a certificate but not the secret, passes everything on between two nodes that have both: the proofs are
// those of other connections, and neither node takes him for the other.
func TestProofsAreBoundToTheConnection(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	s := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))
	node := Credentials{Secret: []byte(secret), TLS: s}
	c, left := tcpPair(t)
	right, a := tcpPair(t)
	go func() {
		l := s.Server(left)
		if l.Handshake() != nil {
			return
		}
		r, err := s.Client(t.Context(), right, "b")
		if err != nil {
			return
		}
		go func() {
			_, _ = io.Copy(l, r)
			_ = l.CloseWrite()
		}()
		_, _ = io.Copy(r, l)
		_ = r.CloseWrite()
	}()
	accepted := make(chan error, 1)
	go func() {
		conn := s.Server(a)
		err := conn.Handshake()
		if err == nil {
			_, _, err = proven(t, 2, node).Accept(conn, admitAll)
		}
		accepted <- err
		_ = conn.Close()
	}()
	conn, err := s.Client(t.Context(), c, "b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proven(t, 1, node).Dial(conn, Raft, anybody); err == nil {
		t.Error("the dialer takes him for the other node")
	}
	_ = conn.Close()
	if err := <-accepted; !errors.Is(err, ErrHandshake) {
		t.Errorf("the acceptor: %v", err)
	}
}

// Who has no certificate of the trust store is no node, whichever side it is on, and each side says why.
func TestStrangersByCertificate(t *testing.T) {
	ca, other := tlstest.NewCA(t, "nodes"), tlstest.NewCA(t, "others")
	good := Credentials{TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))}
	for _, unnamed := range []bool{false, true} {
		o := func(o *TLSOptions) { o.CheckNames = !unnamed }
		// A bad certificate passes no check at a start: it is put in afterwards.
		bad := func(p tlstest.Pair) Credentials {
			s := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"}), o))
			cert := p.TLS(t)
			s.server.Certificates = []tls.Certificate{cert}
			s.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			return Credentials{TLS: s}
		}
		checks := Credentials{TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"b"}), o))}
		serverOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }
		clientOnly := func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }
		for _, tt := range []struct {
			name           string
			dials, accepts Credentials
			dialer         string // in the dialer's error
			acceptor       string // in the acceptor's
		}{
			{"another CA dials", bad(other.Node([]string{"b"})), good, "refuses this one's certificate", "comes from no CA in ssl.truststore"},
			{"an expired one dials", bad(ca.Node([]string{"b"}, tlstest.Expired)), good, "refuses this one's certificate", "renew the other side's certificate"},
			{"one for servers dials", bad(ca.Node([]string{"b"}, serverOnly)), good, "refuses this one's certificate", "incompatible key usage"},
			{"another CA accepts", checks, bad(other.Node([]string{"b"})), "comes from no CA in ssl.truststore", "refuses this one's certificate"},
			{"an expired one accepts", checks, bad(ca.Node([]string{"b"}, tlstest.Expired)), "renew the other side's certificate", "refuses this one's certificate"},
			{"one for clients accepts", checks, bad(ca.Node([]string{"b"}, clientOnly)), "incompatible key usage", "refuses this one's certificate"},
			{"a plain node dials", Credentials{Secret: []byte(secret)}, good, "EOF", "a node that does not speak TLS"},
			{"a plain node accepts", checks, Credentials{Secret: []byte(secret)}, "its listener is not SSL", "not a preamble"},
		} {
			log, dErr, aErr := meet(t, tt.dials, tt.accepts, "b")
			if dErr == nil || !strings.Contains(dErr.Error(), tt.dialer) {
				t.Errorf("%s: the dialer has %v, want %q", tt.name, dErr, tt.dialer)
			}
			if aErr == nil || !strings.Contains(aErr.Error(), tt.acceptor) {
				t.Errorf("%s: the acceptor has %v, want %q", tt.name, aErr, tt.acceptor)
			}
			if tt.dials.TLS != nil && strings.Count(log, "no secure connection to a node") != 1 {
				t.Errorf("%s: the dialer said %q", tt.name, log)
			}
		}
	}
}

// A certificate of the right CA under another name is found out by who checks names.
func TestNameOfTheCertificate(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	there := Credentials{TLS: newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))}
	for _, check := range []bool{true, false} {
		c := Credentials{TLS: newTLS(t, tlsOptions(ca, ca.Node(nil), func(o *TLSOptions) { o.CheckNames = check }))}
		_, dErr, aErr := meet(t, c, there, "a")
		if check != (dErr != nil) || check != (aErr != nil) || check && !strings.Contains(dErr.Error(), "valid for b, not a: put the name") {
			t.Errorf("checking names %v: %v, %v", check, dErr, aErr)
		}
	}
	if there.TLS.Names("b") != nil || there.TLS.Names("a") == nil {
		t.Error("the certificate is for b, and for nobody else")
	}
}

// tcpPair is a connection over the loopback, which has buffers.
func tcpPair(t *testing.T) (c, s net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // two ends are there
	if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if s, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	return c, s
}

// A client without any certificate gets through no handshake.
func TestClientWithoutACertificate(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	there := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c, s := tcpPair(t)
		done := make(chan error, 1)
		go func() {
			done <- there.Server(s).Handshake()
			_ = s.Close()
		}()
		client := tls.Client(c, &tls.Config{RootCAs: ca.Pool(), ServerName: "b", MaxVersion: version}) //nolint:gosec // a test of both
		_ = client.Handshake()
		if b, err := io.ReadAll(client); len(b) > 0 || err == nil {
			t.Errorf("a stranger reads %q, %v", b, err)
		}
		if err := <-done; err == nil || !strings.Contains(err.Error(), "didn't provide a certificate") {
			t.Errorf("the node has %v", err)
		}
	}
}

// Old versions of TLS are not spoken.
func TestOldVersionsOfTLS(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	there := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))
	c, s := tcpPair(t)
	go func() {
		client := tls.Client(c, &tls.Config{RootCAs: ca.Pool(), ServerName: "b", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // a test
		_ = client.Handshake()
		_ = c.Close()
	}()
	if err := there.Server(s).Handshake(); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("the node has %v", err)
	}
}

// A node without a secret proves and believes nothing on a connection that no certificate stands behind.
func TestNoProofWithoutACertificate(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	s := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"}), func(o *TLSOptions) { o.ClientAuth = tls.NoClientCert }))
	byCertificate := proven(t, 2, Credentials{TLS: s})
	c, d := tcpPair(t)
	if _, err := byCertificate.Dial(c, Raft, anybody); !errors.Is(err, ErrHandshake) {
		t.Errorf("dialled in plain text: %v", err)
	}
	if _, _, err := byCertificate.Accept(d, admitAll); !errors.Is(err, ErrHandshake) {
		t.Errorf("accepted in plain text: %v", err)
	}
	secure := s.Server(d)
	go func() {
		client := tls.Client(c, &tls.Config{RootCAs: ca.Pool(), ServerName: "b", MinVersion: tls.VersionTLS13})
		_ = client.Handshake()
	}()
	if err := secure.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := byCertificate.Accept(secure, admitAll); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("a client without a certificate: %v", err)
	}
	if _, err := (Credentials{}).Identity(ID{}); err == nil {
		t.Error("an identity without any proof was made")
	}
	if _, err := (Credentials{Secret: []byte("short"), TLS: s}).Identity(ID{}); err == nil {
		t.Error("a short secret was taken")
	}
}

// A start says what is wrong with a key or trust store, and what to do, and nothing of a key.
func TestBadStores(t *testing.T) {
	ca, other := tlstest.NewCA(t, "nodes"), tlstest.NewCA(t, "others")
	good := ca.Node([]string{"b"})
	for _, tt := range []struct {
		name string
		edit func(*TLSOptions)
		want string
	}{
		{"no chain", func(o *TLSOptions) { o.Certificate = nil }, "ssl.keystore: there is no certificate in PEM form"},
		{"chain is no PEM", func(o *TLSOptions) { o.Certificate = []byte{0xfe, 0xed, 0xfe, 0xed} }, "ssl.keystore: there is no certificate in PEM form"},
		{"chain is cut", func(o *TLSOptions) { o.Certificate = o.Certificate[:len(o.Certificate)-40] }, "ssl.keystore: there is no certificate in PEM form"},
		{"no key", func(o *TLSOptions) { o.Key = o.Certificate }, "ssl.keystore: there is no private key in PEM form"},
		{"two keys", func(o *TLSOptions) { o.Key = append(bytes.Clone(o.Key), o.Key...) }, "ssl.keystore: there are two private keys"},
		{"encrypted key", func(o *TLSOptions) {
			o.Key = bytes.ReplaceAll(o.Key, []byte("PRIVATE KEY"), []byte("ENCRYPTED PRIVATE KEY"))
		}, "ssl.keystore: the private key is encrypted, which is not supported yet"},
		{"another's key", func(o *TLSOptions) { o.Key = ca.Node(nil).Key }, "ssl.keystore: the private key does not belong to the certificate of CN=node"},
		{"expired", func(o *TLSOptions) { p := ca.Node(nil, tlstest.Expired); o.Certificate, o.Key = p.Chain, p.Key }, "certificate has expired or is not yet valid"},
		{"not yet valid", func(o *TLSOptions) { o.Wall = func() time.Time { return time.Now().Add(-48 * time.Hour) } }, "certificate has expired or is not yet valid"},
		{"for clients only", func(o *TLSOptions) {
			p := ca.Node(nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} })
			o.Certificate, o.Key = p.Chain, p.Key
		}, "incompatible key usage"},
		{"another CA", func(o *TLSOptions) { o.Trust = other.PEM() }, "signed by unknown authority"},
		{"no trust", func(o *TLSOptions) { o.Trust = nil }, "ssl.truststore: there is no certificate in PEM form"},
	} {
		_, err := NewTLS(tlsOptions(ca, good, tt.edit))
		e, ok := errors.AsType[*TLSError](err)
		if !ok || !strings.Contains(err.Error(), tt.want) || e.Todo == "" {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// PEM of a properties file is one line, and that of a file may have anything around it.
func TestPEMAsItComes(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	p := ca.Node([]string{"b"})
	line := func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), []byte(" ")) }
	for name, edit := range map[string]func(*TLSOptions){
		"one line": func(o *TLSOptions) { o.Certificate, o.Key, o.Trust = line(o.Certificate), line(o.Key), line(o.Trust) },
		"one file": func(o *TLSOptions) { o.Certificate, o.Key = p.PEM(), p.PEM() },
		"two CAs":  func(o *TLSOptions) { o.Trust = append(tlstest.NewCA(t, "old").PEM(), o.Trust...) },
		"with words": func(o *TLSOptions) {
			o.Certificate = append([]byte("Bag Attributes: x\nsubject=CN = node\n"), o.Certificate...)
		},
		"Windows":     func(o *TLSOptions) { o.Certificate = bytes.ReplaceAll(o.Certificate, []byte("\n"), []byte("\r\n")) },
		"CA in chain": func(o *TLSOptions) { o.Certificate = append(bytes.Clone(o.Certificate), ca.PEM()...) },
	} {
		if _, err := NewTLS(tlsOptions(ca, p, edit)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is wrong with a node is said once, however often it is found: at another time, from another port, in turn with something
// else. After a while it is said again, and no node is worth more than a few lines until then.
func TestComplaintsDoNotRepeat(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	now := time.Now()
	dials := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"}), func(o *TLSOptions) { o.Wall = func() time.Time { return now } }))
	bad := func(p tlstest.Pair) func(*net.TCPConn) {
		s := newTLS(t, tlsOptions(ca, ca.Node([]string{"b"})))
		s.server.Certificates = []tls.Certificate{p.TLS(t)}
		return func(raw *net.TCPConn) { _ = s.Server(raw).Handshake() }
	}
	expired := bad(ca.Node([]string{"b"}, tlstest.Expired))
	unnamed := 0
	reset := func(raw *net.TCPConn) {
		_, _ = raw.Read(make([]byte, 1))
		_ = raw.SetLinger(0)
	}
	for _, tt := range []struct {
		name    string
		answers []func(*net.TCPConn)
		lines   int
	}{
		{"an expired certificate", []func(*net.TCPConn){expired, expired, expired}, 1},
		{"a reset", []func(*net.TCPConn){reset, reset, reset}, 1},
		{"two in turn", []func(*net.TCPConn){expired, reset, expired, reset, expired, reset}, 2},
		{"always another name", slices.Repeat([]func(*net.TCPConn){func(raw *net.TCPConn) {
			unnamed++
			bad(ca.Node([]string{fmt.Sprint("c", unnamed)}))(raw)
		}}, 2*maxReasons), maxReasons},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for _, answer := range slices.Concat(tt.answers, tt.answers) {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				answer(raw.(*net.TCPConn))
				_ = raw.Close()
			}
		}()
		var log bytes.Buffer
		logger, clock := slog.New(slog.NewTextHandler(&log, nil)), time.Now()
		c := complaints{logger: logger, now: func() time.Time { return clock }, of: map[string]*saidOf{}}
		round := func(want int) {
			t.Helper()
			for range tt.answers {
				raw, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				if _, err = dials.Client(t.Context(), raw, "b"); err == nil {
					t.Fatalf("%s: a connection", tt.name)
				}
				c.about("b:1", err)
				now = now.Add(time.Second)
			}
			if n := strings.Count(log.String(), "no secure connection to a node"); n != want {
				t.Errorf("%s: %d lines, want %d: %s", tt.name, n, want, log.String())
			}
		}
		round(tt.lines)
		clock = clock.Add(complaintPeriod)
		round(2 * tt.lines)
		_ = l.Close()
	}
}
