package raftctl

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"github.com/kajamq/kaja/internal/planted"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/coordrec"
)

// change is one step of the committed image on its way to the publisher.
type change struct {
	delta     *image.Delta
	image     *image.Image
	published chan struct{} // closed once Publish returned
}

// outcome is what the FSM says of an entry.
type outcome struct {
	dropped   bool // it did not fit and has no effect
	err       error
	published chan struct{}
}

// fsm applies committed entries: decode, image, hand over. Its methods are called by raft's one FSM goroutine, except
// Persist of a snapshot, which works on an image of its own.
type fsm struct {
	clusterID     string
	current       atomic.Pointer[image.Image] // committed
	changes       chan<- change
	full          chan struct{} // signalled when a snapshot is due by bytes; holds one
	stop          <-chan struct{}
	fail          func(error)              // ends the controller
	committed     func(index, term uint64) // told of every entry before it is applied
	applied       atomic.Int64             // bytes of entries since the last snapshot; the next is due at snapshotBytes
	snapshotBytes int64
	poison        error // first entry that cannot be applied; final
}

// Apply implements raft.FSM. What it cannot apply poisons it: the image stays where it is, no snapshot is taken any
// more, and the controller ends.
func (f *fsm) Apply(l *raft.Log) any {
	if f.poison != nil {
		return &outcome{err: f.poison}
	}
	f.committed(l.Index, l.Term)
	if f.applied.Add(int64(len(l.Data))) >= f.snapshotBytes {
		select {
		case f.full <- struct{}{}:
		default:
		}
	}
	e, err := decodeEntry(l.Data)
	if err != nil {
		return f.poisoned(l.Index, err)
	}
	img := f.current.Load()
	if !fits(img, e) {
		return &outcome{dropped: true}
	}
	next, delta, err := img.With(image.Position{Offset: wire.Offset(l.Index), Entry: e.number}, e.records)
	if err != nil {
		return f.poisoned(l.Index, err)
	}
	return &outcome{published: f.advance(delta, next)}
}

// fits is the fence: a claim of the next epoch, or the next entry of the current one.
func fits(img *image.Image, e entry) bool {
	if planted.On(planted.EntriesUnfenced) && !e.claim() {
		return true
	}
	if e.claim() {
		return e.epoch == img.ControllerEpoch()+1
	}
	return e.epoch == img.ControllerEpoch() && e.number == img.Entry()+1
}

func (f *fsm) poisoned(index uint64, err error) *outcome {
	var unknown *coordrec.UnknownRecordError
	if errors.As(err, &unknown) {
		err = fmt.Errorf("%w: run a release that does", err)
	}
	f.poison = fmt.Errorf("metadata entry %d cannot be applied: %w", index, err)
	f.fail(f.poison)
	return &outcome{err: f.poison}
}

func (f *fsm) advance(delta *image.Delta, next *image.Image) chan struct{} {
	f.current.Store(next)
	c := change{delta: delta, image: next, published: make(chan struct{})}
	select {
	case f.changes <- c:
	case <-f.stop:
	}
	return c.published
}

// A snapshot: u8 format, i64 offset, u64 entry number, uvarint length and bytes of the cluster id, then records as in an
// entry.
const snapshotFormat = 1

// Snapshot implements raft.FSM.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.poison != nil {
		return nil, f.poison
	}
	f.applied.Store(0)
	return &fsmSnapshot{f.current.Load()}, nil
}

type fsmSnapshot struct{ img *image.Image }

func (s *fsmSnapshot) Persist(sink raft.SnapshotSink) error {
	if err := writeSnapshot(sink, s.img); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (*fsmSnapshot) Release() {}

func writeSnapshot(w io.Writer, img *image.Image) error {
	pos := img.Position()
	b := append([]byte(nil), snapshotFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(pos.Offset))
	b = binary.BigEndian.AppendUint64(b, pos.Entry)
	b = binary.AppendUvarint(b, uint64(len(img.ClusterID())))
	b = append(b, img.ClusterID()...)
	if _, err := w.Write(b); err != nil {
		return err
	}
	var body, framed []byte
	for r := range img.Records() {
		body = coordrec.AppendMetadata(body[:0], r)
		framed = append(binary.AppendUvarint(framed[:0], uint64(len(body))), body...)
		if _, err := w.Write(framed); err != nil {
			return err
		}
	}
	return nil
}

// Restore implements raft.FSM. The delta is the difference to the image before, never "everything is new".
func (f *fsm) Restore(r io.ReadCloser) error {
	img, err := readSnapshot(bufio.NewReaderSize(r, 64<<10), f.clusterID)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("restore metadata snapshot: %w", err)
	}
	f.applied.Store(0)
	f.advance(image.Diff(f.current.Load(), img), img)
	return nil
}

func readSnapshot(r *bufio.Reader, clusterID string) (*image.Image, error) {
	head := make([]byte, 17)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	if head[0] != snapshotFormat {
		return nil, fmt.Errorf("format %d is not known to this release", head[0])
	}
	pos := image.Position{Offset: wire.Offset(binary.BigEndian.Uint64(head[1:])), Entry: binary.BigEndian.Uint64(head[9:])}
	id, err := readChunk(r)
	if err != nil {
		return nil, err
	}
	if string(id) != clusterID {
		return nil, fmt.Errorf("it is of cluster %q, this node belongs to %q", id, clusterID)
	}
	var records []coordrec.MetadataRecord
	for {
		body, err := readChunk(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		rec, err := coordrec.DecodeMetadata(body)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(records), err)
		}
		records = append(records, rec)
	}
	img, _, err := image.Empty(clusterID).With(pos, records)
	return img, err
}

// readChunk reads a length and as many bytes; io.EOF only before the length.
func readChunk(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	if n > maxEntryBytes {
		return nil, fmt.Errorf("a record of %d bytes", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return b, nil
}
