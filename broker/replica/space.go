package replica

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
)

const (
	// autoReserveShare and autoReserveMax bound the reserve where none is configured.
	autoReserveShare = 32       // part of the file system
	autoReserveMax   = 64 << 20 // bytes
	// spaceShare is the part of the space above the reserve that is handed out before the file system is asked again:
	// indexes, other log directories and other programs take from the same space.
	spaceShare = 16
	spaceLook  = 100 * time.Millisecond // between two questions while the disk is full
	spaceTold  = time.Minute            // between two log lines about it
)

// space keeps the last bytes of a log directory's file system for what must go on when data has filled it: the
// controller's log, committed offsets and transactions, checkpoints. Records of clients' topics are refused as on a full
// disk while less than the reserve is free. Safe for concurrent use.
type space struct {
	fs     vfs.FS
	dir    string
	want   int64 // reserve in bytes; 0: none; < 0: chosen by the size of the file system
	now    func() time.Time
	logger *slog.Logger

	left atomic.Int64 // bytes that may be taken without a look

	mu     sync.Mutex
	full   bool
	looked time.Time
	told   time.Time
}

// take asks for n bytes of data. Its error matches log.ErrDiskFull.
func (s *space) take(n int64) error {
	if s.want == 0 || s.left.Add(-n) >= 0 {
		return nil
	}
	return s.look(n)
}

func (s *space) look(n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left.Load() >= 0 && !s.full {
		return nil // somebody else has just looked
	}
	now := s.now()
	if s.full && now.Sub(s.looked) < spaceLook {
		return s.refusal()
	}
	s.looked = now
	total, free, err := s.fs.Usage(s.dir)
	if err != nil {
		s.left.Store(0)
		return nil // the write itself will tell
	}
	above := free - reserveOf(s.want, total)
	if above < n {
		s.left.Store(-1)
		s.tell(now, total, free)
		s.full = true
		return s.refusal()
	}
	s.left.Store(above / spaceShare)
	if s.full {
		s.full, s.told = false, time.Time{}
		s.logger.Info("log directory has space again, writes go on", "dir", s.dir, "free", free)
	}
	return nil
}

func (s *space) tell(now time.Time, total, free int64) {
	if s.full && now.Sub(s.told) < spaceTold {
		return
	}
	s.told = now
	s.logger.Warn("log directory is full: records are refused until space is freed; reads, commits and deletions go on",
		"dir", s.dir, "total", total, "free", free, "reserve", reserveOf(s.want, total))
}

func (s *space) refusal() error {
	return &log.StorageError{Op: "write", File: s.dir, Err: fmt.Errorf("only the reserve is left: %w", syscall.ENOSPC)}
}

// reserveOf is the reserve in bytes of a file system.
func reserveOf(want, total int64) int64 {
	if want >= 0 {
		return want
	}
	return min(total/autoReserveShare, autoReserveMax)
}
