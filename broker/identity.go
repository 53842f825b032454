package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// Names in a log directory. All but RaftDirName are Kafka's.
const (
	// RaftDirName is the directory of the raft store, in the metadata directory.
	RaftDirName = "raft"

	metaName     = "meta.properties"
	lockName     = ".lock"
	clusterDir   = "__cluster_metadata-0"                       // what kafka-storage format makes
	firstCkpt    = "00000000000000000000-0000000000.checkpoint" // in clusterDir or, of older versions, beside metaName
	bootstrapCkp = "bootstrap.checkpoint"                       // of older versions of kafka-storage format
	lostAndFound = "lost+found"                                 // what mkfs makes
	maxListed    = 10                                           // names of strange files that a message lists
)

// Identity is who a node is: the cluster, the node and its directories, as meta.properties in every directory says.
// While it is open the directories are locked against other processes.
type Identity struct {
	// ClusterID is "" while a cluster of several nodes forms, until Adopt.
	ClusterID string
	NodeID    wire.BrokerID
	// Founder is the node, as peer.ID.String gives it, that this one has let found the cluster; "" for none.
	Founder string
	// Formed: the identity was made while a cluster of several nodes formed. Without metadata such a node waits for the
	// cluster that it belongs to, and begins none of its own.
	Formed bool
	// Dirs is the log directories, in the configured order.
	Dirs []DataDir
	// Metadata is the directory that holds the raft store; it may be one of Dirs.
	Metadata DataDir
	// MayBootstrap: no directory holds anything but its identity and, perhaps, a raft store. If that store has no state
	// yet (this is the first start, or a crash cut it short), the node may bootstrap itself; else it must not.
	MayBootstrap bool
	// New: at least one directory got its identity now.
	New bool
	// Formatted is what kafka-storage format wrote beside the ids, nil if nothing; FormattedBy is the files that say so.
	Formatted   *Formatted
	FormattedBy []string

	fs    vfs.FS
	locks []io.Closer
}

// DataDir is one directory and its id.
type DataDir struct {
	Path string
	ID   wire.UUID
}

// RaftDir is where the raft store lies.
func (id *Identity) RaftDir() string { return path.Join(id.Metadata.Path, RaftDirName) }

// Close releases the locks.
func (id *Identity) Close() error {
	var errs []error
	for _, l := range slices.Backward(id.locks) {
		errs = append(errs, l.Close())
	}
	id.locks = nil
	return errors.Join(errs...)
}

// IdentityOptions is what OpenIdentity needs.
type IdentityOptions struct {
	FS vfs.FS
	// LogDirs is the configured directories, at least one; MetadataDir may be one of them.
	LogDirs     []string
	MetadataDir string
	NodeID      wire.BrokerID
	// ClusterID is the configured cluster id, "" to draw one for an empty directory.
	ClusterID string
	// Alone: the node is to be the only controller of its cluster, so a directory that was formatted for a quorum of others is
	// refused.
	Alone bool
	// Forming: the node may be one of several of a new cluster, whose id is not known yet.
	Forming bool
	// NewUUID draws an id, never a reserved one.
	NewUUID func() wire.UUID
}

// OpenIdentity finds out who the node is, and makes it up if every directory is empty. It locks the directories, and
// the caller owns the result and closes it. Errors are *StartError.
//
// Without a raft store a directory must be empty (but for a lock file and what mkfs makes) or hold no more than what
// kafka-storage format leaves, which is then taken over: the ids, and the levels of features. Anything else is refused, untouched: a directory whose
// metadata is gone still holds somebody's records.
//
// A failure or a crash leaves each directory without an identity or with a whole one; a start after it goes on from
// there.
func OpenIdentity(o IdentityOptions) (*Identity, error) {
	paths := slices.Clone(o.LogDirs)
	if !slices.Contains(paths, o.MetadataDir) {
		paths = append(paths, o.MetadataDir)
	}
	id := &Identity{NodeID: o.NodeID, fs: o.FS}
	if err := id.open(o, paths); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

func (id *Identity) open(o IdentityOptions, paths []string) error {
	// Look before the lock file is made, so that a directory which is refused keeps every byte and every name. What
	// another process does meanwhile is seen by the second look, under the lock.
	locked, err := id.lockExisting(o.FS, paths)
	if err != nil {
		return err
	}
	if _, err := survey(o, paths); err != nil {
		return err
	}
	for _, p := range paths {
		if err := makeDir(o.FS, p); err != nil {
			return dirError("make directory "+p, p, err)
		}
		if slices.Contains(locked, p) {
			continue
		}
		if err := id.lock(o.FS, p); err != nil {
			return err
		}
	}
	found, err := survey(o, paths)
	if err != nil {
		return err
	}
	return id.settle(o, paths, found)
}

// lockExisting locks the directories that have a lock file already.
func (id *Identity) lockExisting(fs vfs.FS, paths []string) ([]string, error) {
	var locked []string
	for _, p := range paths {
		ok, err := vfs.Exists(fs, path.Join(p, lockName))
		if err != nil && !errors.Is(err, syscall.ENOTDIR) {
			return nil, dirError("look into "+p, p, err)
		}
		if !ok {
			continue
		}
		if err := id.lock(fs, p); err != nil {
			return nil, err
		}
		locked = append(locked, p)
	}
	return locked, nil
}

func (id *Identity) lock(fs vfs.FS, dir string) error {
	l, err := fs.Lock(path.Join(dir, lockName))
	if err != nil {
		return dirError("lock directory "+dir, dir, err)
	}
	id.locks = append(id.locks, l)
	return nil
}

// findings is what the directories hold.
type findings struct {
	raft      bool
	used      bool                       // a directory holds more than its identity and the raft store
	meta      map[string]*metaProperties // by directory; nil where there is none
	format    []string                   // files that kafka-storage format left, beside the identities
	formatted *Formatted
}

// survey reads all directories without changing anything, and refuses what may not be used.
func survey(o IdentityOptions, paths []string) (findings, error) {
	f := findings{meta: map[string]*metaProperties{}}
	store, err := list(o.FS, path.Join(o.MetadataDir, RaftDirName))
	if err != nil && !errors.Is(err, syscall.ENOTDIR) {
		return f, dirError("look into "+o.MetadataDir, o.MetadataDir, err)
	}
	f.raft = len(store) > 0 // an empty directory is no store: somebody has emptied it, or the first start was cut short
	for _, p := range paths {
		meta, err := readMeta(o.FS, p)
		if err != nil {
			return f, err
		}
		f.meta[p] = meta
		strange, format, err := inspect(o.FS, p, p == o.MetadataDir)
		if err != nil {
			return f, dirError("list directory "+p, p, err)
		}
		if len(strange) > 0 && !f.raft {
			return f, refuseStrange(o, p, strange)
		}
		f.used = f.used || len(strange) > 0
		f.format = append(f.format, format...)
	}
	if err := f.agree(o, paths); err != nil {
		return f, err
	}
	f.formatted, err = readFormatted(o.FS, f.format)
	if f.raft { // what was formatted has been taken in long ago
		return f, nil
	}
	if err == nil && o.Alone && f.formatted != nil {
		var dir wire.UUID
		if m := f.meta[o.MetadataDir]; m != nil {
			dir = m.directoryID
		}
		err = f.formatted.alone(f.format[0], o.NodeID, dir)
	}
	return f, err
}

// inspect lists what a directory without a raft store may not hold, and the files of kafka-storage format. In the metadata directory the raft store itself is not listed.
func inspect(fs vfs.FS, dir string, metadata bool) (strange, format []string, err error) {
	entries, err := list(fs, dir)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range entries {
		if name == RaftDirName && metadata {
			continue
		}
		switch name {
		case metaName, metaName + vfs.TempSuffix, lockName, lostAndFound:
		case bootstrapCkp, firstCkpt:
			format = append(format, path.Join(dir, name))
		case clusterDir:
			inner, err := list(fs, path.Join(dir, name))
			switch {
			case errors.Is(err, syscall.ENOTDIR):
				strange = append(strange, name)
				continue
			case err != nil:
				return nil, nil, err
			}
			for _, n := range inner {
				if n == firstCkpt {
					format = append(format, path.Join(dir, name, n))
				} else {
					strange = append(strange, path.Join(name, n))
				}
			}
		default:
			strange = append(strange, name)
		}
	}
	return strange, format, nil
}

// list is the names in dir; none if it does not exist.
func list(fs vfs.FS, dir string) ([]string, error) {
	entries, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// agree checks that all identities found are this node's.
func (f findings) agree(o IdentityOptions, paths []string) error {
	cluster, from := o.ClusterID, "the setting kaja.cluster.id"
	seen := map[wire.UUID]string{}
	for _, p := range paths {
		m := f.meta[p]
		if m == nil {
			continue
		}
		if m.nodeID != o.NodeID {
			return &StartError{What: "use directory " + p, Err: fmt.Errorf("it belongs to node %d, and this is node %d", m.nodeID, o.NodeID),
				Todo: fmt.Sprintf("Set node.id=%d, or choose another directory with log.dirs.", m.nodeID)}
		}
		if m.clusterID == "" {
			continue
		}
		if cluster != "" && m.clusterID != cluster {
			return &StartError{What: "use directory " + p, Err: fmt.Errorf("it belongs to cluster %s, but %s says %s", m.clusterID, from, cluster),
				Todo: "Choose another directory with log.dirs, or correct the cluster id."}
		}
		cluster, from = m.clusterID, path.Join(p, metaName)
		if other, ok := seen[m.directoryID]; ok && !m.directoryID.IsZero() {
			return &StartError{What: "use directory " + p, Err: fmt.Errorf("it has the same directory.id as %s: one is a copy of the other", other),
				Todo: "Remove the copy from log.dirs."}
		}
		seen[m.directoryID] = p
	}
	if !f.raft {
		return nil
	}
	for _, p := range paths {
		if f.meta[p] == nil {
			return missingMeta(o, p, cluster)
		}
	}
	return nil
}

// missingMeta refuses a directory without an identity beside a raft store: it may be a disk that is not mounted.
func missingMeta(o IdentityOptions, dir, cluster string) error {
	todo := fmt.Sprintf("If a disk is not mounted, mount it. If the directory is new, write the file %s with the lines version=1, cluster.id=%s and node.id=%d, then start again.",
		path.Join(dir, metaName), cluster, o.NodeID)
	if cluster == "" {
		todo = "Restore meta.properties from a backup; without it the metadata store cannot be told from another node's."
	}
	return &StartError{What: "use directory " + dir, Err: fmt.Errorf("it has no %s, but the node's metadata store in %s exists", metaName, path.Join(o.MetadataDir, RaftDirName)), Todo: todo}
}

func refuseStrange(o IdentityOptions, dir string, strange []string) error {
	shown := strange
	more := ""
	if len(shown) > maxListed {
		shown, more = shown[:maxListed], fmt.Sprintf(" and %d more", len(strange)-maxListed)
	}
	return &StartError{
		What: "use directory " + dir,
		Err: fmt.Errorf("it is not empty and there is no metadata store in %s; found %s%s",
			path.Join(o.MetadataDir, RaftDirName), strings.Join(shown, ", "), more),
		Todo: "Nothing was changed. Choose an empty directory with log.dirs; if this one was kaja's, restore its metadata store first.",
	}
}

// settle writes the identity where it is missing.
func (id *Identity) settle(o IdentityOptions, paths []string, f findings) error {
	id.MayBootstrap, id.Formatted, id.FormattedBy = !f.used, f.formatted, f.format
	for _, p := range paths {
		m := f.meta[p]
		if m == nil {
			continue
		}
		if m.clusterID != "" {
			id.ClusterID = m.clusterID
		}
		if id.Formed = id.Formed || m.formed; m.founder != "" {
			id.Founder = m.founder
		}
	}
	if id.ClusterID == "" {
		id.ClusterID = o.ClusterID
	}
	switch {
	case id.ClusterID != "":
	case o.Forming:
		id.Formed = true
	default:
		id.ClusterID, id.Formed = o.NewUUID().String(), false
	}
	var made []string
	for _, p := range paths {
		m := f.meta[p]
		if m == nil || m.directoryID.IsZero() || m.clusterID != id.ClusterID {
			isNew := m == nil
			whole := &metaProperties{clusterID: id.ClusterID, nodeID: id.NodeID, formed: id.Formed, founder: id.Founder}
			if isNew || m.directoryID.IsZero() {
				whole.directoryID = o.NewUUID()
			} else {
				whole.directoryID = m.directoryID
			}
			m = whole
			if isNew {
				made = append(made, p)
				id.New = true
			}
			if err := vfs.WriteAtomic(o.FS, path.Join(p, metaName), m.encode()); err != nil {
				return errors.Join(dirError("write the identity of "+p, p, err), unmake(o.FS, made))
			}
		}
		dir := DataDir{Path: p, ID: m.directoryID}
		if slices.Contains(o.LogDirs, p) {
			id.Dirs = append(id.Dirs, dir)
		}
		if p == o.MetadataDir {
			id.Metadata = dir
		}
	}
	return nil
}

// Adopt makes the node one of a cluster and notes who may found it, "" for nobody. Both are durable when it returns; after
// a failure a start goes on from what was written.
func (id *Identity) Adopt(clusterID, founder string) error {
	dirs := []DataDir{id.Metadata} // first: it decides
	for _, d := range id.Dirs {
		if d != id.Metadata {
			dirs = append(dirs, d)
		}
	}
	for _, d := range dirs {
		m := &metaProperties{clusterID: clusterID, nodeID: id.NodeID, directoryID: d.ID, formed: true, founder: founder}
		if err := vfs.WriteAtomic(id.fs, path.Join(d.Path, metaName), m.encode()); err != nil {
			return dirError("write the identity of "+d.Path, d.Path, err)
		}
	}
	id.ClusterID, id.Founder, id.Formed = clusterID, founder, true
	return nil
}

// unmake removes the identities that a failed start has made.
func unmake(fs vfs.FS, dirs []string) error {
	var errs []error
	for _, dir := range dirs {
		for _, name := range []string{metaName, metaName + vfs.TempSuffix} {
			if err := fs.Remove(path.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// makeDir makes dir and what lies above it, durably.
func makeDir(fs vfs.FS, dir string) error {
	var missing []string // the deepest first
	for p := path.Clean(dir); ; p = path.Dir(p) {
		ok, err := vfs.Exists(fs, p)
		if err != nil {
			return err
		}
		if ok || p == path.Dir(p) {
			break
		}
		missing = append(missing, p)
	}
	if len(missing) == 0 {
		info, err := fs.Stat(dir)
		if err == nil && !info.Dir {
			err = syscall.ENOTDIR
		}
		return err
	}
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, p := range missing {
		if err := fs.SyncDir(path.Dir(p)); err != nil {
			return err
		}
	}
	return nil
}

// dirError adds what to do about a failed file operation.
func dirError(what, dir string, err error) error {
	todo := "Check the directory and the disk, then start again."
	switch {
	case errors.Is(err, vfs.ErrLocked):
		err = errors.New("another process uses it")
		todo = "Stop the other process, or choose another directory with log.dirs."
	case noRoom(err):
		todo = "Free some space on the disk of " + dir + ", or choose another directory with log.dirs."
	case readOnly(err):
		todo = "Make " + dir + " writable for the user that runs kaja, or choose another directory with log.dirs."
	case errors.Is(err, syscall.ENOTDIR):
		todo = "Choose a directory with log.dirs; there is a file in the way."
	}
	return &StartError{What: what, Err: err, Todo: todo}
}

func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

func readOnly(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)
}
