package peer

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// DialFunc is net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// Credentials is what a node proves to be one of its cluster by: the secret, certificates, or both.
type Credentials struct {
	Secret []byte // nil: certificates are the proof, on both sides of every connection
	TLS    *TLS   // nil: connections are plain, and the secret is the proof
}

// Identity is a node that proves itself by c. It refuses a secret of fewer than MinSecret bytes, and no proof at all.
func (c Credentials) Identity(self ID) (*Identity, error) {
	if n := len(c.Secret); n < MinSecret && (n > 0 || c.TLS == nil) {
		return nil, fmt.Errorf("the cluster secret has %d bytes, the least is %d", n, MinSecret)
	}
	if len(self.ClusterID) > maxClusterID {
		return nil, fmt.Errorf("the cluster id has %d bytes, the most is %d", len(self.ClusterID), maxClusterID)
	}
	return &Identity{self: self, secret: bytes.Clone(c.Secret), secure: c.TLS != nil}, nil
}

// Dialer makes the connections that dial makes secure, if c has TLS. Why a node cannot be spoken with goes to logger, once until
// it is another reason.
func (c Credentials) Dialer(dial DialFunc, logger *slog.Logger) DialFunc {
	if c.TLS == nil {
		return dial
	}
	said := &complaints{logger: logger, now: time.Now, of: map[string]*saidOf{}}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		conn, err := c.TLS.Client(ctx, raw, host)
		if err != nil {
			if ctx.Err() == nil {
				said.about(addr, err)
			}
			return nil, fmt.Errorf("TLS handshake with %s: %w", addr, err)
		}
		conn.refused = func(err error) { said.about(addr, err) }
		return conn, nil
	}
}

const (
	// maxComplaints bounds how many addresses are remembered, maxReasons how many lines there are about one in a period.
	maxComplaints = 1024
	maxReasons    = 8
	// complaintPeriod is when what is still wrong with an address is said again.
	complaintPeriod = time.Hour
)

// complaints logs why addresses cannot be spoken with, each reason once in a period. Safe for concurrent use.
type complaints struct {
	logger *slog.Logger
	now    func() time.Time
	mu     sync.Mutex
	of     map[string]*saidOf
}

// saidOf is what has been said of one address, and since when.
type saidOf struct {
	since   time.Time
	reasons []string
}

func (c *complaints) about(addr string, err error) {
	if c.fresh(addr, lasting(err)) {
		c.logger.Warn("no secure connection to a node", slog.String("address", addr), slog.Any("err", err))
	}
}

// fresh notes a reason, and reports whether it is to be said.
func (c *complaints) fresh(addr, why string) bool {
	now := c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.of[addr]
	if said == nil || now.Sub(said.since) >= complaintPeriod {
		if said == nil && len(c.of) >= maxComplaints {
			clear(c.of)
		}
		said = &saidOf{since: now}
		c.of[addr] = said
	}
	if len(said.reasons) == maxReasons || slices.Contains(said.reasons, why) {
		return false
	}
	said.reasons = append(said.reasons, why)
	return true
}

// lasting is what of err stays the same from one attempt to the next: neither the time at which a certificate was found expired nor
// the port that was dialled from.
func lasting(err error) string {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Sprintf("certificate is invalid: %d", invalid.Reason)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Op + ": " + op.Err.Error()
	}
	return err.Error()
}

// key is what proofs on conn are made with.
func (i *Identity) key(conn net.Conn) ([]byte, error) {
	if !i.secure {
		return i.secret, nil
	}
	c := secureOf(conn)
	switch {
	case c == nil:
		return nil, fmt.Errorf("%w: the connection is not secure", ErrHandshake)
	case len(i.secret) == 0 && !c.Verified():
		return nil, fmt.Errorf("%w: the other side has shown no certificate", ErrHandshake)
	}
	bound, err := c.binding()
	if err != nil {
		return nil, errors.Join(ErrHandshake, err)
	}
	return append(bytes.Clone(i.secret), bound...), nil
}
