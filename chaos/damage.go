//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errNothingClosed says that there is no closed segment yet.
var errNothingClosed = errors.New("there is no closed segment yet")

// flipBit flips one bit in a segment of a client's topic below dir that is not the partition's last one.
func flipBit(dir string, rng *rand.Rand) (name string, at int64, err error) {
	byPartition := map[string][]string{}
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".log") && !strings.HasPrefix(filepath.Base(filepath.Dir(path)), "__") {
			byPartition[filepath.Dir(path)] = append(byPartition[filepath.Dir(path)], path)
		}
		return err
	})
	var closed []string
	for _, files := range byPartition {
		slices.Sort(files)
		closed = append(closed, files[:len(files)-1]...)
	}
	if err != nil {
		return "", 0, fmt.Errorf("look for segments: %w", err)
	}
	if len(closed) == 0 {
		return "", 0, errNothingClosed
	}
	slices.Sort(closed)
	name = closed[rng.IntN(len(closed))]
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return "", 0, fmt.Errorf("%s is empty: %w", name, err)
	}
	at = rng.Int64N(info.Size())
	one := make([]byte, 1)
	if _, err := f.ReadAt(one, at); err != nil {
		return "", 0, err
	}
	one[0] ^= 1 << rng.IntN(8)
	_, err = f.WriteAt(one, at)
	return name, at, err
}
