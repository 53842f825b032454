package raftstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/hashicorp/raft-wal/types"
	"github.com/kajamq/kaja/vfs"
)

const (
	metaName  = "META"
	metaMagic = "KAJAMET1"
)

// metaStore is raft-wal's list of segments as one sealed file, replaced atomically. It holds no stable values: those are
// in stable.
type metaStore struct {
	fs  vfs.FS
	dir string
}

func (m *metaStore) Load(dir string) (types.PersistentState, error) {
	m.dir = dir
	var state types.PersistentState
	payload, err := readSealed(m.fs, path.Join(dir, metaName), metaMagic)
	if err != nil || payload == nil {
		return state, err
	}
	if err := json.Unmarshal(payload, &state); err != nil {
		return state, &CorruptError{File: path.Join(dir, metaName), Reason: err.Error(), Advice: rebuild}
	}
	for i := range state.Segments {
		state.Segments[i].Codec = codecID // see filer
	}
	return state, nil
}

func (m *metaStore) CommitState(state types.PersistentState) error {
	payload, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode the list of segments: %w", err)
	}
	return vfs.WriteAtomic(m.fs, path.Join(m.dir, metaName), seal(metaMagic, payload))
}

var errNoStable = errors.New("stable values are not kept in the list of segments")

func (*metaStore) GetStable([]byte) ([]byte, error) { return nil, errNoStable }
func (*metaStore) SetStable(_, _ []byte) error      { return errNoStable }
func (*metaStore) Close() error                     { return nil }
