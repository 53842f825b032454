package broker

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/internal/tlstest"
	"github.com/kajamq/kaja/vfs/memfs"
)

// Keys and certificates come from files; what is wrong with them is said at the start, with what to do, before anything is bound.
func TestCredentialsFromFiles(t *testing.T) {
	ca, other := tlstest.NewCA(t, "nodes"), tlstest.NewCA(t, "others")
	fs := memfs.New(time.Now)
	for name, data := range map[string][]byte{
		"/node.pem": ca.Node([]string{"b"}).PEM(), "/ca.pem": ca.PEM(), "/other.pem": other.PEM(),
		"/expired.pem": ca.Node([]string{"b"}, tlstest.Expired).PEM(), "/large.pem": make([]byte, maxStoreBytes+1), "/keystore.jks": {0xfe, 0xed, 0xfe, 0xed},
	} {
		f, err := fs.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := fs.MkdirAll("/dir"); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ node, trust, want string }{
		{"/node.pem", "/ca.pem", ""},
		{"/missing.pem", "/ca.pem", "read ssl.keystore.location"},
		{"/node.pem", "/missing.pem", "read ssl.truststore.location"},
		{"/dir", "/ca.pem", "read ssl.keystore.location: /dir is a directory"},
		{"/large.pem", "/ca.pem", "read ssl.keystore.location: /large.pem has 1048577 bytes, the most is 1048576"},
		{"/keystore.jks", "/ca.pem", "there is no certificate in PEM form"},
		{"/ca.pem", "/ca.pem", "there is no private key in PEM form"},
		{"/node.pem", "/other.pem", "signed by unknown authority"},
		{"/expired.pem", "/ca.pem", "has expired"},
	} {
		cfg, _, err := config.Load(config.Sources{Set: []string{
			"log.dirs=/data", "listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9093", "controller.listener.names=CONTROLLER",
			"inter.broker.listener.name=INTERNAL", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL",
			"ssl.client.auth=required", "ssl.keystore.type=PEM", "ssl.keystore.location=" + tt.node, "ssl.truststore.type=PEM", "ssl.truststore.location=" + tt.trust,
		}})
		if err != nil {
			t.Fatal(err)
		}
		env := Env{FS: fs, Wall: time.Now, Logger: slog.New(slog.DiscardHandler), Hostname: func() (string, error) { return "b", nil }}
		c, err := credentials(env, cfg)
		if tt.want == "" {
			if err != nil || c.TLS == nil || c.Secret != nil {
				t.Errorf("%s and %s: %v", tt.node, tt.trust, err)
			}
			continue
		}
		b, err := New(env, cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Start(t.Context()) // there is nothing to listen with
		e, ok := errors.AsType[*StartError](err)
		if !ok || !strings.Contains(err.Error(), tt.want) || e.Todo == "" {
			t.Errorf("%s and %s: %v, want %q", tt.node, tt.trust, err, tt.want)
		}
	}
}

// Only the versions of ssl.enabled.protocols are spoken.
func TestVersionsOfTLS(t *testing.T) {
	ca := tlstest.NewCA(t, "nodes")
	p := ca.Node([]string{"b"})
	for enabled, want := range map[string][]uint16{
		"TLSv1.2,TLSv1.3": {tls.VersionTLS12, tls.VersionTLS13}, "TLSv1.2": {tls.VersionTLS12}, "TLSv1.3": {tls.VersionTLS13},
	} {
		cfg, _, err := config.Load(config.Sources{Set: []string{
			"log.dirs=/data", "listeners=PLAINTEXT://:9092,SSL://:9094", "security.inter.broker.protocol=SSL", "ssl.client.auth=required",
			"ssl.keystore.type=PEM", "ssl.keystore.certificate.chain=" + string(p.Chain), "ssl.keystore.key=" + string(p.Key),
			"ssl.truststore.type=PEM", "ssl.truststore.certificates=" + string(ca.PEM()), "ssl.enabled.protocols=" + enabled,
		}})
		if err != nil {
			t.Fatal(err)
		}
		creds, err := credentials(Env{Wall: time.Now}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint16
		for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
			c, s := net.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = tls.Client(c, &tls.Config{RootCAs: ca.Pool(), ServerName: "b", Certificates: []tls.Certificate{p.TLS(t)}, MinVersion: version, MaxVersion: version}).Handshake() //nolint:gosec // old ones, too
			}()
			switch err := creds.TLS.Server(s).Handshake(); {
			case err == nil:
				got = append(got, version)
			case !strings.Contains(err.Error(), "version"):
				t.Errorf("%s: %x: %v", enabled, version, err)
			}
			_ = s.Close()
			<-done
			_ = c.Close()
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: spoken are %x, want %x", enabled, got, want)
		}
	}
}
