package peer

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"time"
)

// TLSOptions is what NewTLS needs: the settings ssl.* of the listeners on which nodes speak to each other.
type TLSOptions struct {
	Certificate []byte // PEM: the node's own certificate, then those between it and a trusted one
	Key         []byte // PEM: its private key
	Trust       []byte // PEM: the certificates that others' must come from
	ClientAuth  tls.ClientAuthType
	MinVersion  uint16 // of crypto/tls; inclusive
	MaxVersion  uint16 // inclusive
	// CheckNames: the name or address that is dialled must be in the certificate that is found there.
	CheckNames bool
	Wall       func() time.Time // by which certificates are valid or not
}

// TLS makes connections between nodes secure, in both directions. Immutable; safe for concurrent use.
type TLS struct {
	leaf           *x509.Certificate
	server, client *tls.Config
}

// TLSError is a key or trust store that nodes cannot speak with.
type TLSError struct {
	Setting string // the settings that are wrong, for people
	Err     error
	Todo    string // one sentence for the operator
}

func (e *TLSError) Error() string { return e.Setting + ": " + e.Err.Error() }

// Unwrap gives the cause.
func (e *TLSError) Unwrap() error { return e.Err }

// NewTLS checks everything that can be checked without another node: what is expired, belongs to another key, or is not signed
// by what is trusted. The error is a *TLSError.
func NewTLS(o TLSOptions) (*TLS, error) {
	const keystore, truststore = "ssl.keystore", "ssl.truststore"
	chain, err := parseCertificates(o.Certificate)
	if err != nil {
		return nil, &TLSError{keystore, err, "Give it the node's certificate chain in PEM form, its own certificate first."}
	}
	key, err := parseKey(o.Key)
	if err != nil {
		return nil, &TLSError{keystore, err, "Give it the private key of the certificate in PEM form without a password; `openssl pkcs8 -topk8 -nocrypt` makes one."}
	}
	leaf := chain[0]
	if own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool }); !ok || !own.Equal(leaf.PublicKey) {
		return nil, &TLSError{keystore, fmt.Errorf("the private key does not belong to the certificate of %s", subject(leaf)),
			"Give it the key that the certificate was made for; the node's own certificate must be the first of the chain."}
	}
	trusted, err := parseCertificates(o.Trust)
	if err != nil {
		return nil, &TLSError{truststore, err, "Give it the certificate of the CA that signs those of the nodes, in PEM form."}
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range trusted {
		roots.AddCert(c)
	}
	cert := tls.Certificate{PrivateKey: key, Leaf: leaf}
	for i, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
		if i > 0 {
			between.AddCert(c)
		}
	}
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: o.Wall(), KeyUsages: []x509.ExtKeyUsage{use}})
		if err != nil {
			return nil, &TLSError{keystore, fmt.Errorf("the node's own certificate, of %s: %w", subject(leaf), err), ownTodo(err)}
		}
	}
	common := tls.Config{
		MinVersion: o.MinVersion, MaxVersion: o.MaxVersion, Time: o.Wall, Certificates: []tls.Certificate{cert},
		SessionTicketsDisabled: true, // every connection proves its certificates anew
		// A record of full size costs as many system calls as a small one.
		DynamicRecordSizingDisabled: true,
	}
	t := &TLS{leaf: leaf, server: common.Clone(), client: common.Clone()}
	t.server.ClientAuth, t.server.ClientCAs = o.ClientAuth, roots
	t.client.RootCAs = roots
	// Whatever CAs the other side names: it says better what is wrong with a certificate than with none.
	t.client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	if !o.CheckNames {
		t.client.InsecureSkipVerify = true //nolint:gosec // VerifyConnection checks all but the name
		t.client.VerifyConnection = func(s tls.ConnectionState) error { return verifyUnnamed(s, roots, o.Wall()) }
	}
	return t, nil
}

// verifyUnnamed checks a server's certificate without its name.
func verifyUnnamed(s tls.ConnectionState, roots *x509.CertPool, now time.Time) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	return err
}

// Names reports whether the node's own certificate is good for being reached at host, a name or an address.
func (t *TLS) Names(host string) error { return t.leaf.VerifyHostname(host) }

// Server is conn as a listener that is SSL has it; Handshake comes before its first byte.
func (t *TLS) Server(conn net.Conn) *SecureConn {
	return &SecureConn{Conn: tls.Server(conn, t.server), raw: conn}
}

// Client makes conn secure, to a node that was dialled at host. It owns conn after an error.
func (t *TLS) Client(ctx context.Context, conn net.Conn, host string) (*SecureConn, error) {
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	cfg := t.client.Clone()
	cfg.ServerName = host
	c := &SecureConn{Conn: tls.Client(conn, cfg), raw: conn, dialled: true}
	if err := c.Conn.HandshakeContext(ctx); err != nil {
		if err = explain(err); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			err = fmt.Errorf("%w: the other side broke off; perhaps its listener is not SSL", err)
		}
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// ownTodo says what to do about the node's own certificate.
func ownTodo(err error) string {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case isInvalid && invalid.Reason == x509.Expired:
		return "Renew the certificate, or set this machine's clock."
	case isInvalid && invalid.Reason == x509.IncompatibleUsage:
		return "Nodes connect to each other in both directions: the certificate's extended key usage must name both serverAuth and clientAuth, or be absent."
	case unknown:
		return "The trust store must hold the CA of the nodes' certificates, this node's own too, and the key store what lies between them."
	}
	return "Replace the certificate."
}

// subject names a certificate for people.
func subject(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return s
	}
	return fmt.Sprint(slices.Concat(c.DNSNames, []string{c.SerialNumber.String()}))
}
