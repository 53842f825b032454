package raftctl

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/raftctl/raftstore"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire/coordrec"
)

// Stored is the metadata store of a node that does not run.
type Stored struct {
	store     *raftstore.Store
	self      peer.ID
	clusterID string
	logger    *raftLogger
}

// OpenStored opens the store of a stopped node. The caller closes it.
func OpenStored(fs vfs.FS, dir string, self peer.ID, logger *slog.Logger) (*Stored, error) {
	l := newRaftLogger(logger, true)
	s, err := raftstore.Open(raftstore.Options{FS: fs, Dir: dir, ClusterID: self.ClusterID, Logger: logger, Wal: l})
	if err != nil {
		return nil, fmt.Errorf("open metadata store: %w", err)
	}
	return &Stored{store: s, self: self, clusterID: self.ClusterID, logger: l}, nil
}

// Close closes the store.
func (s *Stored) Close() error { return s.store.Close() }

// recoveryTerms is how many terms a recovery skips at most: more than elections without the node can have used up. Raft takes two entries
// of one index and term for the same, and lost nodes, or those that have joined meanwhile, may hold others than the recovered quorum.
const recoveryTerms = 1 << 20

// Last is the index and term of the last entry that the node has received; 0 for none.
func (s *Stored) Last() (index, term uint64, err error) { return lastEntry(s.store) }

// LastTerm is the term of the last entry that this node has received; 0 for none.
func (c *Controller) LastTerm() (uint64, error) {
	_, term, err := lastEntry(c.store)
	return term, err
}

// LeftBehind reports whether a node whose last entry is of this term, and which is no member, comes from before a recovery by force, or
// from after one that this quorum does not know of: its history is another one.
func (c *Controller) LeftBehind(lastTerm uint64) bool {
	return lastTerm > 0 && lastTerm/recoveryTerms != c.raft.CurrentTerm()/recoveryTerms
}

func lastEntry(s *raftstore.Store) (index, term uint64, err error) {
	if index, err = s.LastIndex(); err != nil {
		return 0, 0, err
	}
	snapshots, err := s.Snapshots().List()
	if err != nil {
		return 0, 0, err
	}
	if len(snapshots) > 0 && snapshots[0].Index >= index {
		return snapshots[0].Index, snapshots[0].Term, nil
	}
	if index == 0 {
		return 0, 0, nil
	}
	var l raft.Log
	if err := s.GetLog(index, &l); err != nil {
		return 0, 0, err
	}
	return index, l.Term, nil
}

// Members are the nodes of the newest configuration that the node has received.
func (s *Stored) Members() ([]Member, error) {
	cfg, err := s.configuration()
	if err != nil {
		return nil, fmt.Errorf("read the members of the metadata log: %w", err)
	}
	var out []Member
	for _, server := range cfg.Servers {
		id, err := peer.ParseID(string(server.ID))
		if err != nil {
			return nil, err
		}
		out = append(out, Member{ID: id, Voter: server.Suffrage == raft.Voter})
	}
	return out, nil
}

func (s *Stored) configuration() (raft.Configuration, error) {
	first, err := s.store.FirstIndex()
	if err != nil {
		return raft.Configuration{}, err
	}
	last, err := s.store.LastIndex()
	if err != nil {
		return raft.Configuration{}, err
	}
	for i := last; i >= first && i > 0; i-- {
		var l raft.Log
		if err := s.store.GetLog(i, &l); err != nil {
			return raft.Configuration{}, err
		}
		if l.Type == raft.LogConfiguration {
			return raft.DecodeConfiguration(l.Data), nil
		}
	}
	snapshots, err := s.store.Snapshots().List()
	if err != nil || len(snapshots) == 0 {
		return raft.Configuration{}, err
	}
	return snapshots[0].Configuration, nil
}

// Recover makes the node the only member of its quorum, with everything that it has received taken for committed. The
// other members, which may hold another history, are remembered as lost: under the directories that they have now they
// are not taken back. Nor is one that it has never heard of (Controller.LeftBehind).
func (s *Stored) Recover() error {
	members, err := s.Members()
	if err != nil {
		return err
	}
	if err := s.store.SkipTerms(recoveryTerms); err != nil {
		return fmt.Errorf("skip the terms of the lost: %w", err)
	}
	stop := make(chan struct{})
	close(stop) // nobody takes the changes
	var failure error
	f := &recovering{lost: members, self: s.self, fsm: &fsm{
		clusterID: s.clusterID, changes: make(chan change), full: make(chan struct{}, 1), stop: stop,
		fail: func(err error) { failure = err }, committed: func(uint64, uint64) {},
	}}
	f.current.Store(image.Empty(s.clusterID))
	cfg := raft.DefaultConfig()
	cfg.ProtocolVersion, cfg.LocalID, cfg.Logger = raft.ProtocolVersionMax, serverID(s.self), s.logger
	_, transport := raft.NewInmemTransport(raft.ServerAddress(s.self.String()))
	self := raft.Server{ID: serverID(s.self), Address: raft.ServerAddress(s.self.String())}
	err = raft.RecoverCluster(cfg, f, s.store, s.store, s.store.Snapshots(), transport, raft.Configuration{Servers: []raft.Server{self}})
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("make a quorum of one node: %w", err)
	}
	return nil
}

// recovering is an fsm whose snapshot knows the other members as lost.
type recovering struct {
	*fsm
	lost []Member
	self peer.ID
}

// Snapshot implements raft.FSM.
func (r *recovering) Snapshot() (raft.FSMSnapshot, error) {
	img := r.current.Load()
	var records []coordrec.MetadataRecord
	for _, m := range r.lost {
		if m.ID.NodeID != r.self.NodeID || m.ID.DirectoryID != r.self.DirectoryID {
			records = append(records, &coordrec.NodeRecord{NodeID: m.ID.NodeID, DirectoryID: m.ID.DirectoryID})
		}
	}
	next, _, err := img.With(img.Position(), records)
	if err != nil {
		return nil, err
	}
	r.current.Store(next)
	return r.fsm.Snapshot()
}
