package peer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// pemBlock is one block of PEM, as loosely as Kafka reads it: in a properties file a value that goes over several lines is
// one line, so that spaces stand where line ends were.
var pemBlock = regexp.MustCompile(`-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END ([A-Z0-9 ]+)-----`)

// blocks gives the contents of PEM, in order; text around the blocks is passed over.
func blocks(text []byte) (kinds []string, contents [][]byte, err error) {
	for _, m := range pemBlock.FindAllSubmatch(text, -1) {
		kind := string(m[1])
		if kind != string(m[3]) {
			return nil, nil, fmt.Errorf("a block begins as %s and ends as %s", kind, m[3])
		}
		body := strings.Join(strings.Fields(string(m[2])), "")
		der, err := base64.StdEncoding.DecodeString(body)
		if err != nil && !strings.Contains(kind, "KEY") {
			return nil, nil, fmt.Errorf("a block of kind %s is not base64: %w", kind, err)
		}
		kinds, contents = append(kinds, kind), append(contents, der)
	}
	return kinds, contents, nil
}

// parseCertificates reads every certificate of PEM; none is an error.
func parseCertificates(text []byte) ([]*x509.Certificate, error) {
	kinds, contents, err := blocks(text)
	if err != nil {
		return nil, err
	}
	var out []*x509.Certificate
	for i, kind := range kinds {
		if kind != "CERTIFICATE" && kind != "X509 CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(contents[i])
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate in PEM form")
	}
	return out, nil
}

// parseKey reads the private key of PEM. Errors hold nothing of it.
func parseKey(text []byte) (crypto.Signer, error) {
	if s := string(text); strings.Contains(s, "BEGIN ENCRYPTED") || strings.Contains(s, "4,ENCRYPTED") {
		return nil, errors.New("the private key is encrypted, which is not supported yet")
	}
	kinds, contents, err := blocks(text)
	if err != nil {
		return nil, err
	}
	var found crypto.Signer
	for i, kind := range kinds {
		var key any
		var err error
		switch kind {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(contents[i])
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(contents[i])
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(contents[i])
		default:
			continue
		}
		if err != nil {
			return nil, errors.New("the private key cannot be read")
		}
		if found != nil {
			return nil, errors.New("there are two private keys")
		}
		switch k := key.(type) {
		case *rsa.PrivateKey:
			found = k
		case *ecdsa.PrivateKey:
			found = k
		case ed25519.PrivateKey:
			found = k
		default:
			return nil, errors.New("the private key is neither RSA, ECDSA nor Ed25519")
		}
	}
	if found == nil {
		return nil, errors.New("there is no private key in PEM form")
	}
	return found, nil
}
