package raftstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"github.com/kajamq/kaja/vfs"
)

// CorruptError says that a file of the store does not hold what was written to it.
type CorruptError struct {
	File   string
	Reason string
	Advice string // what the operator can do
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged: %s; %s", e.File, e.Reason, e.Advice)
}

// rebuild is the advice for files that nothing else on this node can replace.
const rebuild = "this node's metadata cannot be trusted: restore the directory from a backup, or start the node with an " +
	"empty metadata directory once the other controllers hold the metadata"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Sealed files: magic, u32 length, u32 CRC32C of magic, length and payload, payload. Big endian.
const sealedHeader = 8 + 4 + 4

func seal(magic string, payload []byte) []byte {
	b := make([]byte, sealedHeader, sealedHeader+len(payload))
	copy(b, magic)
	binary.BigEndian.PutUint32(b[8:], uint32(len(payload)))
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[12:], sealedCRC(b))
	return b
}

func sealedCRC(b []byte) uint32 {
	crc := crc32.Update(0, castagnoli(), b[:12])
	return crc32.Update(crc, castagnoli(), b[sealedHeader:])
}

// unseal gives the payload of a sealed file, or says why it is none.
func unseal(magic string, b []byte) ([]byte, error) {
	switch {
	case len(b) < sealedHeader:
		return nil, fmt.Errorf("it has %d bytes, fewer than its header", len(b))
	case string(b[:8]) != magic:
		return nil, errors.New("it does not begin as such a file does")
	case int64(binary.BigEndian.Uint32(b[8:])) != int64(len(b)-sealedHeader):
		return nil, fmt.Errorf("its header promises %d bytes, it holds %d", binary.BigEndian.Uint32(b[8:]), len(b)-sealedHeader)
	case binary.BigEndian.Uint32(b[12:]) != sealedCRC(b):
		return nil, errors.New("its checksum does not match")
	}
	return b[sealedHeader:], nil
}

// readSealed reads a sealed file; nil and no error if it does not exist.
func readSealed(fs vfs.FS, name, magic string) ([]byte, error) {
	b, err := vfs.ReadFile(fs, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	payload, err := unseal(magic, b)
	if err != nil {
		return nil, &CorruptError{File: name, Reason: err.Error(), Advice: rebuild}
	}
	return payload, nil
}

// ClusterError says that a store holds the metadata of another cluster.
type ClusterError struct {
	Dir      string
	Is, Want string // cluster ids
}

func (e *ClusterError) Error() string {
	return fmt.Sprintf("%s holds the metadata of cluster %q, but meta.properties names cluster %q", e.Dir, e.Is, e.Want)
}
