package replica

import (
	"github.com/kajamq/kaja/log"
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
	to, err := h.dir.condemnedPath(h.p.TP, h.p.TopicID)
	if err != nil {
		return "", err
	}
	if err := plog.Rename(to); err != nil {
		return "", err
	}
	return to, nil
}
