package wire

import (
	"io"
	"os"
)

// Source is something a response can send a range of. A vfs.File is one.
type Source interface {
	io.ReaderAt
	// SysFile gives the operating system's file for sendfile, or false where there is none (memory, fault injection).
	SysFile() (*os.File, bool)
}

// Segment is a piece of a response body: either Bytes, or Len bytes of File from Off.
//
// The receiver owns Bytes until Done. Done (may be nil) is called exactly once, when the bytes were sent or the
// connection is gone; it releases a buffer or unpins a log segment.
type Segment struct {
	Bytes []byte
	File  Source
	Off   int64
	Len   int64
	Done  func()
}

// Size is the number of bytes that the segment adds to the response.
func (s Segment) Size() int64 {
	if s.File != nil {
		return s.Len
	}
	return int64(len(s.Bytes))
}

// Release calls Done on each segment; for responses that are dropped instead of sent.
func Release(segs []Segment) {
	for i := range segs {
		if segs[i].Done != nil {
			segs[i].Done()
			segs[i].Done = nil
		}
	}
}
