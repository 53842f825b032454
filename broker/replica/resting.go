package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path"
	"slices"

	"github.com/kajamq/kaja/log"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
)

// restingFile says how a clean stop has left the logs of a directory, so that the next start need not open them. It counts
// beside the clean-shutdown file of the same stop only, and goes with it before anything is written.
const restingFile = ".kaja_cleanshutdown"

const restingVersion = 1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errResting = errors.New("not a list of resting logs")

// restingLogs is the content of that file.
type restingLogs struct {
	epoch wire.BrokerEpoch // of the clean-shutdown file
	dir   wire.UUID        // the log directory's id
	logs  map[wire.TopicPartition]*log.Resting
}

// encode gives the file's bytes: i16 version, u32 CRC-32C of what follows, i64 broker epoch, directory id, and the logs by
// topic and partition.
func (r *restingLogs) encode() []byte {
	tps := make([]wire.TopicPartition, 0, len(r.logs))
	for tp := range r.logs {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, compareTP)
	be := binary.BigEndian
	b := be.AppendUint16(nil, restingVersion)
	b = be.AppendUint32(b, 0)
	b = be.AppendUint64(b, uint64(r.epoch))
	b = append(b, r.dir[:]...)
	for len(tps) > 0 {
		n := 1
		for n < len(tps) && tps[n].Topic == tps[0].Topic {
			n++
		}
		b = binary.AppendUvarint(b, uint64(len(tps[0].Topic)))
		b = append(b, tps[0].Topic...)
		b = binary.AppendUvarint(b, uint64(n))
		for _, tp := range tps[:n] {
			b = appendResting(binary.AppendUvarint(b, uint64(tp.Partition)), r.logs[tp])
		}
		tps = tps[n:]
	}
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func appendResting(b []byte, l *log.Resting) []byte {
	b = append(b, l.TopicID[:]...)
	for _, v := range []int64{l.Changed, int64(l.Start), int64(l.End), int64(l.Epoch), int64(l.EpochStart), int64(len(l.Segments))} {
		b = binary.AppendVarint(b, v)
	}
	for _, s := range l.Segments {
		dated := int64(0)
		if s.Dated {
			dated = 1
		}
		for _, v := range []int64{int64(s.Base), s.Size, s.Changed, dated, s.MaxTime} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

// decodeResting reads what encode has written; anything else is an error.
func decodeResting(data []byte) (*restingLogs, error) {
	be := binary.BigEndian
	if len(data) < 30 || be.Uint16(data) != restingVersion || be.Uint32(data[2:]) != crc32.Checksum(data[6:], castagnoli) {
		return nil, errResting
	}
	r := &restingLogs{epoch: wire.BrokerEpoch(be.Uint64(data[6:])), dir: wire.UUID(data[14:30]), logs: map[wire.TopicPartition]*log.Resting{}}
	c := cursor{b: data[30:]}
	for len(c.b) > 0 && !c.bad {
		topic := string(c.take(c.count(1)))
		for range c.count(1) {
			tp := wire.TopicPartition{Topic: topic, Partition: wire.PartitionID(c.uvarint())}
			r.logs[tp] = c.resting()
		}
	}
	if c.bad {
		return nil, errResting
	}
	return r, nil
}

// cursor takes values from the front of b; bad once there were too few bytes.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n > len(c.b) {
		c.bad = true
		return nil
	}
	out := c.b[:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if c.bad = c.bad || n <= 0; c.bad {
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *cursor) varint() int64 {
	v, n := binary.Varint(c.b)
	if c.bad = c.bad || n <= 0; c.bad {
		return 0
	}
	c.b = c.b[n:]
	return v
}

// count is a number of things of at least size bytes each that follow.
func (c *cursor) count(size int) int {
	n := c.uvarint()
	if c.bad = c.bad || n > uint64(len(c.b)/size); c.bad {
		return 0
	}
	return int(n)
}

func (c *cursor) resting() *log.Resting {
	l := &log.Resting{}
	copy(l.TopicID[:], c.take(len(l.TopicID)))
	l.Changed, l.Start, l.End = c.varint(), wire.Offset(c.varint()), wire.Offset(c.varint())
	l.Epoch, l.EpochStart = wire.LeaderEpoch(c.varint()), wire.Offset(c.varint())
	n := c.varint()
	if c.bad = c.bad || n < 1 || n > int64(len(c.b)/5); c.bad {
		return l
	}
	l.Segments = make([]log.RestingSegment, n)
	for i := range l.Segments {
		l.Segments[i] = log.RestingSegment{Base: wire.Offset(c.varint()), Size: c.varint(), Changed: c.varint(), Dated: c.varint() == 1, MaxTime: c.varint()}
	}
	return l
}

// readResting takes in how the last stop has left the logs, which was the clean one of this broker epoch. Without a list, or
// with one that is not to be believed, each log is opened.
func (d *logDir) readResting(epoch wire.BrokerEpoch) {
	data, err := vfs.ReadFile(d.fs, path.Join(d.path, restingFile))
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var r *restingLogs
	if err == nil {
		r, err = decodeResting(data)
	}
	if err == nil && (r.epoch != epoch || r.dir != d.id) {
		err = fmt.Errorf("%w of this directory and stop", errResting)
	}
	if err != nil {
		d.world.logger.Warn("opening every log: how the last stop has left them is not known", slog.String("dir", d.path), slog.Any("err", err))
		return
	}
	d.resting = r.logs
}

// rests gives how the last stop has left a partition's log, if the checkpoints say the same and its directory is unchanged. changed
// says that it was left otherwise than it is now, or that nothing tells.
func (d *logDir) rests(tp wire.TopicPartition) (r *log.Resting, changed bool) {
	r = d.resting[tp]
	if r == nil {
		return nil, d.resting != nil
	}
	point, known := d.recoveryPoints[tp]
	if !known || point != r.End || max(d.logStarts[tp], r.Segments[0].Base) != r.Start || !r.Unchanged(d.fs, path.Join(d.path, tp.String())) {
		return nil, true
	}
	return r, false
}

// writeResting writes down how a clean stop of this broker epoch has left the logs. Where that fails the next start opens them.
func (d *logDir) writeResting(m *Manager, epoch wire.BrokerEpoch) {
	r := restingLogs{epoch: epoch, dir: d.id, logs: map[wire.TopicPartition]*log.Resting{}}
	homes := d.list()
	found := make([]*log.Resting, len(homes))
	m.parallel(len(homes), func(i int) {
		if plog := homes[i].plog.Load(); plog != nil && homes[i].p.at.Load() == homes[i] {
			found[i] = plog.Resting()
		}
	})
	for i, l := range found {
		if l != nil {
			r.logs[homes[i].p.TP] = l
		}
	}
	if err := vfs.WriteAtomic(d.fs, path.Join(d.path, restingFile), r.encode()); err != nil {
		d.world.logger.Warn("how the logs were left is not written down: the next start opens every one", slog.String("dir", d.path), slog.Any("err", err))
	}
}
