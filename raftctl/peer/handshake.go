package peer

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kajamq/kaja/wire"
)

// Kind is what a connection carries after the handshake.
type Kind uint8

// Kinds of connections.
const (
	Raft  Kind = 1 // hashicorp/raft
	Kafka Kind = 2 // Kafka requests of a broker: those that only a node of the cluster may send
	Call  Kind = 3 // one question and its answer: forming and joining
)

// PreambleSize is how many bytes stand before the handshake.
const PreambleSize = 8

const (
	version      = 1
	nonceSize    = 32
	maxHello     = 512 // bytes of a hello, inclusive
	maxClusterID = 255

	// HandshakeTimeout is how long a handshake may take.
	HandshakeTimeout = 5 * time.Second
	// MinSecret is the least number of bytes of a secret: what is shorter can be guessed by one who listens.
	MinSecret = 16
)

var magic = [4]byte{0xff, 'K', 'J', 'A'}

// IsPreamble reports whether b, four bytes or more of a connection's first, open a handshake.
func IsPreamble(b []byte) bool { return len(b) >= len(magic) && [4]byte(b) == magic }

// ID is who a node is. A directory that was wiped makes another node of it.
type ID struct {
	// ClusterID is "" for a node that belongs to none yet.
	ClusterID   string
	NodeID      wire.BrokerID
	DirectoryID wire.UUID
}

// String is how raft knows the node, and how messages call it.
func (id ID) String() string { return fmt.Sprintf("%d@%s", id.NodeID, id.DirectoryID) }

// ErrHandshake is behind every failure of a handshake that is not the network's.
var ErrHandshake = errors.New("the handshake between nodes failed")

// OtherNodeError is a node that was found where another one was looked for, which may be any node of another cluster.
type OtherNodeError struct{ text string }

func (e *OtherNodeError) Error() string { return e.text }

func otherNode(format string, args ...any) error {
	return &OtherNodeError{fmt.Sprintf(format, args...)}
}

// Identity is what a node proves and asks for. Immutable; safe for concurrent use.
type Identity struct {
	self   ID
	secret []byte // nil where certificates are the proof
	secure bool   // connections are TLS
}

// NewIdentity is Credentials.Identity of a secret alone.
func NewIdentity(self ID, secret []byte) (*Identity, error) {
	return Credentials{Secret: secret}.Identity(self)
}

// Self is who this node is.
func (i *Identity) Self() ID { return i.self }

// Dial opens the handshake on conn, which somebody has connected and who owns it, also after an error. expect is asked
// about the other node before this one proves anything; its error ends the handshake. Deadlines of conn are gone
// afterwards.
func (i *Identity) Dial(conn net.Conn, kind Kind, expect func(ID) error) (ID, error) {
	key, err := i.key(conn)
	if err != nil {
		return ID{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return ID{}, fmt.Errorf("set deadline: %w", err)
	}
	t := append(append(make([]byte, 0, 2*maxHello), magic[:]...), version, byte(kind), 0, 0)
	mine := i.hello()
	if _, err := conn.Write(appendMessage(bytes.Clone(t), mine)); err != nil {
		return ID{}, fmt.Errorf("send hello: %w", err)
	}
	theirs, err := readMessage(conn)
	if err != nil {
		return ID{}, fmt.Errorf("read hello: %w", err)
	}
	other, err := parseHello(theirs)
	if err != nil {
		return ID{}, err
	}
	if err := i.sameCluster(other, kind); err != nil {
		return other, err
	}
	if err := expect(other); err != nil {
		return other, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	t = appendMessage(appendMessage(t, mine), theirs)
	if _, err := conn.Write(appendMessage(nil, proof(key, "dialer", t))); err != nil {
		return other, fmt.Errorf("send proof: %w", err)
	}
	if err := i.verify(conn, key, "acceptor", t); err != nil {
		return other, err
	}
	return other, conn.SetDeadline(time.Time{})
}

// Accept answers the handshake on conn, from its first byte on; the caller owns conn, also after an error. admit is asked
// once the other node has proven who it is. Deadlines of conn are gone afterwards.
func (i *Identity) Accept(conn net.Conn, admit func(Kind, ID) error) (Kind, ID, error) {
	key, err := i.key(conn)
	if err != nil {
		return 0, ID{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return 0, ID{}, fmt.Errorf("set deadline: %w", err)
	}
	t := make([]byte, PreambleSize, 2*maxHello)
	if _, err := io.ReadFull(conn, t); err != nil {
		return 0, ID{}, fmt.Errorf("read preamble: %w", err)
	}
	kind := Kind(t[5])
	switch {
	case !IsPreamble(t):
		return 0, ID{}, fmt.Errorf("%w: not a preamble", ErrHandshake)
	case t[4] != version:
		return 0, ID{}, fmt.Errorf("%w: version %d is not known to this release", ErrHandshake, t[4])
	case kind < Raft || kind > Call || t[6] != 0 || t[7] != 0:
		return 0, ID{}, fmt.Errorf("%w: kind %d is not known to this release", ErrHandshake, kind)
	}
	theirs, err := readMessage(conn)
	if err != nil {
		return kind, ID{}, fmt.Errorf("read hello: %w", err)
	}
	other, err := parseHello(theirs)
	if err != nil {
		return kind, ID{}, err
	}
	mine := i.hello()
	if _, err := conn.Write(appendMessage(nil, mine)); err != nil {
		return kind, other, fmt.Errorf("send hello: %w", err)
	}
	t = appendMessage(appendMessage(t, theirs), mine)
	if err := i.verify(conn, key, "dialer", t); err != nil {
		return kind, other, err
	}
	// After the proof, so that what is said about another cluster's node is about a node. Which cluster this is, the hello has
	// told whoever asked.
	if err := i.sameCluster(other, kind); err != nil {
		return kind, other, err
	}
	if err := admit(kind, other); err != nil {
		return kind, other, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	if _, err := conn.Write(appendMessage(nil, proof(key, "acceptor", t))); err != nil {
		return kind, other, fmt.Errorf("send proof: %w", err)
	}
	return kind, other, conn.SetDeadline(time.Time{})
}

// sameCluster refuses another cluster's node. Only a Call may come from, or reach, a node that has none yet.
func (i *Identity) sameCluster(other ID, kind Kind) error {
	if other.ClusterID == i.self.ClusterID && other.ClusterID != "" {
		return nil
	}
	if kind == Call && (other.ClusterID == "" || i.self.ClusterID == "") {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHandshake, otherNode("node %d belongs to cluster %q, this node to %q", other.NodeID, other.ClusterID, i.self.ClusterID))
}

// hello: node id, directory id, nonce, cluster id.
func (i *Identity) hello() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(i.self.NodeID))
	b = append(b, i.self.DirectoryID[:]...)
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails: it ends the process instead
	return append(append(b, nonce...), i.self.ClusterID...)
}

const helloHead = 4 + 16 + nonceSize

func parseHello(b []byte) (ID, error) {
	if len(b) < helloHead || len(b) > helloHead+maxClusterID {
		return ID{}, fmt.Errorf("%w: a hello of %d bytes", ErrHandshake, len(b))
	}
	return ID{
		NodeID: wire.BrokerID(binary.BigEndian.Uint32(b)), DirectoryID: wire.UUID(b[4:20]),
		ClusterID: string(b[helloHead:]),
	}, nil
}

func proof(key []byte, role string, transcript []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(role)) // a hash never fails
	h.Write(transcript)
	return h.Sum(nil)
}

func (i *Identity) verify(conn io.Reader, key []byte, role string, transcript []byte) error {
	got, err := readMessage(conn)
	if err != nil {
		return fmt.Errorf("read proof: %w", err)
	}
	if !hmac.Equal(got, proof(key, role, transcript)) {
		if len(i.secret) == 0 {
			return fmt.Errorf("%w: the other node has a secret, and this one has none: set kaja.cluster.secret on both, or on neither", ErrHandshake)
		}
		return fmt.Errorf("%w: the other node does not have this cluster's secret", ErrHandshake)
	}
	return nil
}

func appendMessage(b, message []byte) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(message))), message...)
}

// readMessage reads exactly one message, byte for byte: what follows it belongs to the next reader.
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(size[:]))
	if n > maxHello {
		return nil, fmt.Errorf("%w: a message of %d bytes, the most is %d", ErrHandshake, n, maxHello)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, err
}
