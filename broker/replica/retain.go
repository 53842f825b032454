package replica

import (
	"path"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

// retain runs retention once and gives the number of segments that it deleted.
func (p *Partition) retain(h *home, plog *log.Log) (int, error) {
	n, err := plog.DeleteOld(p.world.aged.now(), p.Offsets().HW)
	p.mu.Lock()
	here := p.at.Load() == h // and has not moved meanwhile
	var told note
	if here {
		told = p.noteLocked(p.onLogStartLocked(plog.StartOffset()))
	}
	p.mu.Unlock()
	if !here {
		return 0, nil
	}
	p.tell(told)
	if err != nil {
		return n, h.failed(err)
	}
	return n, nil
}

// condemn closes the log of a deleted partition and renames its directory durably, so that a start after a crash does
// not find it under its name. Readers that hold ranges of it finish.
func (h *home) condemn(plog *log.Log) (string, error) {
	tp, id := h.p.TP, h.p.TopicID
	to := path.Join(h.dir.path, deletedDirName(tp, id))
	for {
		taken, err := vfs.Exists(h.dir.fs, to)
		if err != nil {
			return "", err
		}
		if !taken {
			break
		}
		id[15]++ // a replica that came back and went again
		to = path.Join(h.dir.path, deletedDirName(tp, id))
	}
	if err := plog.Rename(to); err != nil {
		return "", err
	}
	return to, nil
}
