package replica

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

// openVolume opens the file system of the directory, for as long as the directory is used: an error of writing back is told
// to each directory on it, whenever it comes. A directory without one, because it is not known of its file system that one
// sync makes all of it durable, has each log synced by itself.
func (m *Manager) openVolume(d *logDir) error {
	if m.o.SyncTogether < 0 {
		return nil
	}
	v, err := d.fs.Volume(d.path)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the file system of %s: %w", d.path, err)
	}
	d.volume = v
	return nil
}

// closeVolumes is the last thing that a manager does.
func (m *Manager) closeVolumes() {
	for _, d := range m.dirs {
		if d.volume != nil {
			_ = d.volume.Close() // of a directory that was opened for reading
			d.volume = nil
		}
	}
}

// together gives the file system to be synced as a whole for n logs of the directory, or nil where each is synced by itself.
func (m *Manager) together(d *logDir, n int) vfs.Volume {
	if n < m.o.SyncTogether {
		return nil
	}
	return d.volume
}

// syncTogether makes logs durable by one sync of their file system.
func (m *Manager) syncTogether(d *logDir, v vfs.Volume, logs []*log.Log) error {
	began := m.world.now()
	if err := v.Sync(); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", d.path, err)
	}
	for _, l := range logs {
		l.Durable()
	}
	m.world.logger.Debug("file system synced as a whole", slog.String("dir", d.path), slog.Int("logs", len(logs)), since(m.world, began))
	return nil
}

// closeLogs closes every log of a directory cleanly, and as many as can be if one fails. Where the sync of all together
// fails, none is synced again.
func (m *Manager) closeLogs(d *logDir) error {
	var logs, busy []*log.Log
	for _, h := range d.list() {
		if plog := h.plog.Load(); plog != nil {
			logs = append(logs, plog)
			if !plog.Idle() {
				busy = append(busy, plog)
			}
		}
	}
	var failed error
	if v := m.together(d, len(busy)); v != nil {
		var done []*log.Log
		errs := make([]error, len(busy))
		m.parallel(len(busy), func(i int) {
			if on, err := v.Holds(busy[i].Dir()); err != nil || !on {
				busy[i] = nil // Close syncs it, or tells what is wrong
				return
			}
			errs[i] = busy[i].Complete()
		})
		for i, l := range busy {
			if l != nil && errs[i] == nil {
				done = append(done, l)
			}
		}
		failed = errors.Join(errs...)
		if err := m.syncTogether(d, v, done); err != nil {
			return errors.Join(failed, err)
		}
	}
	errs := make([]error, len(logs))
	m.parallel(len(logs), func(i int) { errs[i] = logs[i].Close() })
	return errors.Join(failed, errors.Join(errs...))
}
