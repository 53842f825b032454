package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// SecureConn is a TLS connection of a node. Closing it ends the connection below at once: who closes may hold a lock, and a
// peer that does not read must not keep it.
type SecureConn struct {
	*tls.Conn
	raw     net.Conn
	dialled bool
	refused func(error) // told when the other side has refused this node's certificate after the handshake; nil: nobody is
}

// Handshake makes an accepted connection secure within HandshakeTimeout; the deadlines are gone afterwards. io.EOF: the other
// side has left without a word.
func (c *SecureConn) Handshake() error {
	if err := c.raw.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return err
	}
	if err := c.Conn.Handshake(); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("%w: it was not over after %v", err, HandshakeTimeout)
		}
		return explain(err)
	}
	return c.raw.SetDeadline(time.Time{})
}

// Read implements net.Conn.
func (c *SecureConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && refusal(err) {
		err = explain(err)
		if c.refused != nil {
			c.refused(err)
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c *SecureConn) Close() error { return c.raw.Close() }

// CloseWrite says that nothing more comes, in TLS and below it.
func (c *SecureConn) CloseWrite() error {
	err := c.Conn.CloseWrite()
	if below, ok := c.raw.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, below.CloseWrite())
	}
	return err
}

// Verified reports whether the other side has proven a certificate that the trust store covers. The handshake is over.
func (c *SecureConn) Verified() bool {
	return c.dialled || len(c.ConnectionState().VerifiedChains) > 0 // a dialled one is not there without
}

// bindingSize is the size of a connection's binding, in bytes.
const bindingSize = 32

// binding is what the two ends of this very TLS connection know and nobody else does (RFC 5705).
func (c *SecureConn) binding() ([]byte, error) {
	state := c.ConnectionState()
	return state.ExportKeyingMaterial("EXPORTER-kaja-node", nil, bindingSize)
}

// secureOf finds the TLS connection that conn wraps; nil if there is none.
func secureOf(conn net.Conn) *SecureConn {
	for {
		if c, ok := conn.(*SecureConn); ok {
			return c
		}
		below, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		conn = below.NetConn()
	}
}

// refusal reports whether err is the other side's alert.
func refusal(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// explain adds to a failed TLS handshake what to look at.
func explain(err error) error {
	invalid, isInvalid := errors.AsType[x509.CertificateInvalidError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, name := errors.AsType[x509.HostnameError](err)
	record, plain := errors.AsType[tls.RecordHeaderError](err)
	hint := ""
	switch {
	case plain && IsPreamble(record.RecordHeader[:]):
		hint = "a node that does not speak TLS: its listeners for nodes must be SSL, too"
	case plain:
		hint = "the other side does not speak TLS, and this listener is SSL, or was taken for one"
	case isInvalid && invalid.Reason == x509.Expired:
		hint = "renew the other side's certificate, or set the clock that is wrong"
	case unknown:
		hint = "the other side's certificate comes from no CA in ssl.truststore"
	case name:
		hint = "put the name that is dialled into the certificate's subject alternative names, or advertise another one"
	case refusal(err):
		hint = "the other side refuses this one's certificate or TLS version, and its log says why"
	default:
		return err
	}
	return fmt.Errorf("%w: %s", err, hint)
}
