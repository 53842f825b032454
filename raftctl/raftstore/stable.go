package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"

	"github.com/kajamq/kaja/vfs"
)

const (
	voteName  = "VOTE"
	voteMagic = "KAJAVOT2"
)

// raft's keys.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// ballot is what a node must remember between elections.
type ballot struct {
	term      uint64 // current term
	voteTerm  uint64 // term of the last vote
	candidate []byte // who got it
}

// encode also names the cluster: raft writes its term before anything else, so a store that holds anything says whose
// metadata it is.
func (b ballot) encode(cluster string) []byte {
	p := binary.BigEndian.AppendUint64(nil, b.term)
	p = binary.BigEndian.AppendUint64(p, b.voteTerm)
	p = binary.BigEndian.AppendUint16(p, uint16(len(cluster)))
	return append(append(p, cluster...), b.candidate...)
}

const ballotHead = 8 + 8 + 2

func decodeBallot(p []byte) (b ballot, cluster string, ok bool) {
	if len(p) < ballotHead || len(p) < ballotHead+int(binary.BigEndian.Uint16(p[16:])) {
		return b, "", false
	}
	n := ballotHead + int(binary.BigEndian.Uint16(p[16:]))
	b.term, b.voteTerm = binary.BigEndian.Uint64(p), binary.BigEndian.Uint64(p[8:])
	if len(p) > n {
		b.candidate = append([]byte(nil), p[n:]...)
	}
	return b, string(p[ballotHead:n]), true
}

// stable keeps raft's term and vote. raft writes a vote in two steps, its term and then its candidate; a crash between
// them would leave the new term beside the old candidate, which raft then takes for the vote of that term. So the term of
// a vote stays in memory until the candidate comes, and both become durable as one record.
//
// Callers are serialised by Store.
type stable struct {
	fs      vfs.FS
	file    string
	cluster string
	present bool // the file is there: raft has run on this store
	durable ballot
	pending *uint64 // term of a vote whose candidate has not come yet
}

func openStable(fs vfs.FS, dir, cluster string) (*stable, error) {
	s := &stable{fs: fs, file: path.Join(dir, voteName), cluster: cluster}
	p, err := readSealed(fs, s.file, voteMagic)
	if err != nil {
		return nil, fmt.Errorf("read term and vote: %w", err)
	}
	if p == nil {
		return s, nil
	}
	b, of, ok := decodeBallot(p)
	if !ok {
		return nil, &CorruptError{File: s.file, Reason: fmt.Sprintf("its record has %d bytes", len(p)), Advice: rebuild}
	}
	if of != cluster {
		return nil, &ClusterError{Dir: dir, Is: of, Want: cluster}
	}
	s.durable, s.present = b, true
	return s, nil
}

func (s *stable) write(b ballot) error {
	if err := vfs.WriteAtomic(s.fs, s.file, seal(voteMagic, b.encode(s.cluster))); err != nil {
		return fmt.Errorf("write term and vote: %w", err)
	}
	s.durable, s.present = b, true
	return nil
}

var errUnknownKey = errors.New("not a key that raft keeps")

func (s *stable) setUint64(key string, v uint64) error {
	switch key {
	case keyCurrentTerm:
		b := s.durable
		if b.term = v; v == s.durable.term {
			return nil // raft sets what it has just read at every start
		}
		return s.write(b)
	case keyLastVoteTerm:
		s.pending = &v
		return nil
	}
	return fmt.Errorf("%q: %w", key, errUnknownKey)
}

func (s *stable) set(key string, v []byte) error {
	if key != keyLastVoteCand {
		return fmt.Errorf("%q: %w", key, errUnknownKey)
	}
	b := s.durable
	if s.pending != nil {
		b.voteTerm = *s.pending
	}
	b.candidate = append([]byte(nil), v...)
	if err := s.write(b); err != nil {
		return err
	}
	s.pending = nil
	return nil
}

func (s *stable) uint64(key string) (uint64, error) {
	switch key {
	case keyCurrentTerm:
		return s.durable.term, nil
	case keyLastVoteTerm:
		return s.durable.voteTerm, nil
	}
	return 0, fmt.Errorf("%q: %w", key, errUnknownKey)
}

func (s *stable) get(key string) ([]byte, error) {
	if key != keyLastVoteCand {
		return nil, fmt.Errorf("%q: %w", key, errUnknownKey)
	}
	return append([]byte(nil), s.durable.candidate...), nil
}
