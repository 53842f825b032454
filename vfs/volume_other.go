//go:build unix && !linux

package vfs

import (
	"errors"
	"fmt"
)

// Volume implements FS: there is no call that makes a whole file system durable and says so.
func (OS) Volume(dir string) (Volume, error) {
	return nil, fmt.Errorf("sync the file system of %s: %w", dir, errors.ErrUnsupported)
}
