package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
)

// maxStoreBytes bounds a key or trust store.
const maxStoreBytes = 1 << 20

// credentials is what the node that cfg describes proves itself by; certificates are read now, and not again.
func credentials(env Env, cfg *config.Config) (peer.Credentials, error) {
	c := peer.Credentials{Secret: cfg.Secret()}
	if !cfg.NodeTLS() {
		return c, nil
	}
	s, err := cfg.TLS()
	if err != nil {
		return c, err
	}
	o := peer.TLSOptions{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13, CheckNames: s.CheckNames, Wall: env.Wall}
	if !s.TLS12 {
		o.MinVersion = tls.VersionTLS13
	}
	if !s.TLS13 {
		o.MaxVersion = tls.VersionTLS12
	}
	switch s.ClientAuth {
	case config.ClientAuthRequired:
		o.ClientAuth = tls.RequireAndVerifyClientCert
	case config.ClientAuthRequested:
		o.ClientAuth = tls.VerifyClientCertIfGiven
	case config.ClientAuthNone:
		o.ClientAuth = tls.NoClientCert
	}
	for _, part := range []struct {
		store config.Store
		into  *[]byte
	}{{s.Chain, &o.Certificate}, {s.Key, &o.Key}, {s.Trust, &o.Trust}} {
		if *part.into, err = readStore(env.FS, part.store); err != nil {
			return c, err
		}
	}
	if c.TLS, err = peer.NewTLS(o); err != nil {
		todo := ""
		if e, ok := errors.AsType[*peer.TLSError](err); ok {
			todo = e.Todo
		}
		return c, &StartError{What: "speak TLS with other nodes", Err: err, Todo: todo}
	}
	return c, nil
}

// readStore reads the PEM of a setting, or of the file that it names.
func readStore(fs vfs.FS, s config.Store) ([]byte, error) {
	if s.File == "" {
		return []byte(s.Text), nil
	}
	info, err := fs.Stat(s.File)
	switch {
	case err != nil:
	case info.Dir:
		err = fmt.Errorf("%s is a directory", s.File)
	case info.Size > maxStoreBytes:
		err = fmt.Errorf("%s has %d bytes, the most is %d", s.File, info.Size, maxStoreBytes)
	default:
		var data []byte
		if data, err = vfs.ReadFile(fs, s.File); err == nil {
			return data, nil
		}
	}
	return nil, &StartError{What: "read " + s.Setting, Err: err, Todo: "Name a PEM file that the user that runs kaja can read."}
}

// warnOfName says that others will not take this node's certificate for its own, if they check names.
func (b *Broker) warnOfName(host string) {
	if b.credentials.TLS == nil {
		return
	}
	if err := b.credentials.TLS.Names(host); err != nil {
		b.logger.Warn("nodes that check names will refuse this node: put the host into the certificate's subject alternative names, or advertise another one",
			slog.String("host", host), slog.Any("err", err))
	}
}
