package peer

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/kajamq/kaja/wire"
)

const (
	maxCall     = 4 << 10 // bytes of a question and of an answer
	callTimeout = 5 * time.Second
)

// Question is what a connection of kind Call carries; JSON after a big-endian uint32 length. At most one field is set
// besides Founder; none asks who the other node is.
type Question struct {
	Adopt   string   `json:",omitempty"` // a cluster id to adopt
	Founder string   `json:",omitempty"` // by whom it is founded: who asks
	Join    *Joining `json:",omitempty"` // who asks wants to be a member, or says where it is now
	Status  bool     `json:",omitempty"` // how far the other node is
	NextID  bool     `json:",omitempty"` // a node id that nobody has
}

// Joining is what a node says of itself when it joins.
type Joining struct {
	Host       string // where it accepts the connections of other nodes
	Port       uint16
	Controller bool // its roles let it vote
	// LastTerm is the term of the last entry of the metadata log that it came with; 0 for none.
	LastTerm uint64 `json:",omitempty"`
}

// Answer is what comes back; JSON after a big-endian uint32 length.
type Answer struct {
	Candidate Candidate
	Refused   string `json:",omitempty"` // why the question was not followed
	// Joined answers Join: who asks is a member. If it is not, or NextID is not answered, Leader is the host:port of the node
	// to ask; "" if unknown.
	Joined bool   `json:",omitempty"`
	Leader string `json:",omitempty"`
	// Applied answers Status: the index of the last entry of the metadata log that the node has applied.
	Applied uint64 `json:",omitempty"`
	// End answers Status, too: the end, exclusive, of the metadata that the node has; 0: it has none, or does not tell.
	End wire.Offset `json:",omitempty"`
	// NextID answers NextID: 0 where the node does not lead.
	NextID int32 `json:",omitempty"`
}

// Refusal is an answer that says no.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

// Caller asks questions of nodes. Safe for concurrent use.
type Caller struct {
	Identity *Identity
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Ask asks the node at addr, after expect has agreed to who is there. The error is a *Refusal if the node said no.
func (c Caller) Ask(ctx context.Context, addr string, expect func(ID) error, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := c.Dial(ctx, "tcp", addr)
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close() //nolint:errcheck // the answer has arrived or has not
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	met, err := c.Identity.Dial(conn, Call, expect)
	if err != nil {
		return Answer{}, err
	}
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return Answer{}, err
	}
	if err := writeJSON(conn, q); err != nil {
		return Answer{}, err
	}
	var a Answer
	if err := readJSON(conn, &a); err != nil {
		return Answer{}, errors.Join(err, ctx.Err())
	}
	switch {
	case a.Refused != "":
		return a, &Refusal{a.Refused}
	case a.Candidate.ID.NodeID != met.NodeID || a.Candidate.ID.DirectoryID != met.DirectoryID:
		return Answer{}, fmt.Errorf("%w: node %s answers for node %s", ErrHandshake, met, a.Candidate.ID)
	}
	return a, nil
}

// AnswerCall reads the question of a connection whose handshake said Call, and sends what reply makes of it. The caller
// owns the connection and closes it.
func AnswerCall(conn net.Conn, reply func(Question) Answer) error {
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return err
	}
	var q Question
	if err := readJSON(conn, &q); err != nil {
		return fmt.Errorf("read a question: %w", err)
	}
	return writeJSON(conn, reply(q))
}

// Anybody lets every node of the cluster answer; Only lets one.
func Anybody(ID) error { return nil }

// Only lets the node with this id and directory answer; a zero directory stands for any.
func Only(id ID) func(ID) error {
	return func(found ID) error {
		if found.NodeID != id.NodeID || id.DirectoryID != (wire.UUID{}) && found.DirectoryID != id.DirectoryID {
			return otherNode("node %s is there, not %s", found, id)
		}
		return nil
	}
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

func readJSON(r io.Reader, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxCall {
		return fmt.Errorf("%w: a message of %d bytes, the most is %d", ErrHandshake, n, maxCall)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}
