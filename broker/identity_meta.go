package broker

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/magiconair/properties"

	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// metaProperties is the content of Kafka's meta.properties, version 1.
type metaProperties struct {
	clusterID   string
	nodeID      wire.BrokerID
	directoryID wire.UUID // zero if the file, written by Kafka before 3.7 or by hand, has none
	// formed says that the identity was made while a cluster of several nodes formed: clusterID may then be "", for not
	// adopted yet, and founder is the node that may found the cluster, "" for none.
	formed  bool
	founder string
}

// formedName is the property that holds founder, of formed identities alone. Kafka does not read it.
const formedName = "kaja.founder"

// encode writes the file as Kafka does, without the date.
func (m *metaProperties) encode() []byte {
	b := fmt.Appendf(nil, "#\n#\nnode.id=%d\ndirectory.id=%s\nversion=1\n", m.nodeID, m.directoryID)
	if m.clusterID != "" {
		b = fmt.Appendf(b, "cluster.id=%s\n", m.clusterID)
	}
	if m.formed {
		b = fmt.Appendf(b, "%s=%s\n", formedName, m.founder)
	}
	return b
}

// parseMeta reads a file that encode, Kafka or a person wrote.
func parseMeta(data []byte) (*metaProperties, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(data)
	if err != nil {
		return nil, err
	}
	get := func(name string) string { return strings.TrimSpace(p.GetString(name, "")) }
	if v := get("version"); v != "1" {
		return nil, fmt.Errorf("version is %q, want 1", v)
	}
	m := &metaProperties{clusterID: get("cluster.id"), founder: get(formedName)}
	_, m.formed = p.Get(formedName)
	if m.clusterID == "" && !m.formed {
		return nil, errors.New("cluster.id is missing")
	}
	if strings.ContainsFunc(m.clusterID, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, fmt.Errorf("cluster.id %q holds characters that cannot be printed", m.clusterID)
	}
	node, err := strconv.ParseInt(get("node.id"), 10, 32)
	if err != nil || node < 0 {
		return nil, fmt.Errorf("node.id is %q, want a number from 0 on", get("node.id"))
	}
	m.nodeID = wire.BrokerID(node)
	if dir := get("directory.id"); dir != "" {
		if m.directoryID, err = wire.ParseUUID(dir); err != nil {
			return nil, fmt.Errorf("directory.id: %w", err)
		}
		if reserved(m.directoryID) {
			return nil, fmt.Errorf("directory.id %s is reserved", dir)
		}
	}
	return m, nil
}

// reserved reports whether an id is one of the first hundred, which Kafka gives meanings of their own (DirectoryId:
// lost, unassigned, migrating).
func reserved(id wire.UUID) bool {
	for _, b := range id[:15] {
		if b != 0 {
			return false
		}
	}
	return id[15] < 100
}

// readMeta is the identity of a directory, nil if there is none.
func readMeta(fs vfs.FS, dir string) (*metaProperties, error) {
	name := path.Join(dir, metaName)
	data, err := vfs.ReadFile(fs, name)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, nil
	case err != nil:
		return nil, dirError("read "+name, dir, err)
	}
	m, err := parseMeta(data)
	if err != nil {
		return nil, &StartError{What: "read " + name, Err: err,
			Todo: "Nothing was changed. Restore the file from a backup, or choose another directory with log.dirs."}
	}
	return m, nil
}
