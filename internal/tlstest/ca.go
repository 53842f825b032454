package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// validity is how long certificates are valid, before and after now.
const validity = 24 * time.Hour

// CA signs certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

// NewCA makes an authority of this name.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{t: t, key: newKey(t)}
	ca.cert = ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-10 * validity), NotAfter: time.Now().Add(10 * validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, ca.key)
	return ca
}

// PEM is the authority's certificate.
func (ca *CA) PEM() []byte { return certificate(ca.cert) }

// Pool is a pool of the authority alone.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Pair is a certificate and its key, as PEM.
type Pair struct{ Chain, Key []byte }

// PEM is both, as one file holds them.
func (p Pair) PEM() []byte { return append(append([]byte(nil), p.Key...), p.Chain...) }

// TLS is the pair for a client of crypto/tls.
func (p Pair) TLS(t testing.TB) tls.Certificate {
	t.Helper()
	c, err := tls.X509KeyPair(p.Chain, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Node issues a certificate for these names and addresses, good for both ends of a connection; edit may spoil it.
func (ca *CA) Node(names []string, edit ...func(*x509.Certificate)) Pair {
	ca.t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "node"}, NotBefore: time.Now().Add(-validity), NotAfter: time.Now().Add(validity),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, n)
		}
	}
	for _, e := range edit {
		e(c)
	}
	key := newKey(ca.t)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return Pair{Chain: certificate(ca.sign(c, ca.cert, key)), Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})}
}

// Expired makes Node issue a certificate that was valid until a while ago.
func Expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().Add(-2*validity), time.Now().Add(-time.Hour)
}

// sign signs c, by parent's key or, without a parent, its own.
func (ca *CA) sign(c, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	ca.t.Helper()
	ca.last++
	c.SerialNumber = big.NewInt(ca.last)
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatal(err)
	}
	return out
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificate(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
