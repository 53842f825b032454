package raftctl

import (
	"errors"
	"fmt"
	"log/slog"
	"path"

	"github.com/kajamq/kaja/raftctl/raftstore"
	"github.com/kajamq/kaja/vfs"
)

// ErrNeedsPeers says that the metadata belong to a cluster of several nodes, and that this one was given no way to them.
var ErrNeedsPeers = errors.New("the metadata log belongs to several nodes")

// Founded reports whether the store in dir holds a metadata log or a vote. Nothing may have it open.
func Founded(fs vfs.FS, dir, clusterID string, logger *slog.Logger) (founded bool, err error) {
	if ok, err := vfs.Exists(fs, path.Join(dir, "log")); err != nil || !ok {
		return false, err
	}
	s, err := raftstore.Open(raftstore.Options{FS: fs, Dir: dir, ClusterID: clusterID, Logger: logger, Wal: newRaftLogger(logger, true)})
	if err != nil {
		return false, fmt.Errorf("open metadata store: %w", err)
	}
	founded, err = s.HasState()
	return founded, errors.Join(err, s.Close())
}
