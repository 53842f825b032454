package memfs

import (
	"slices"
	"time"
)

// SectorSize is the unit in bytes in which a crash keeps, loses or garbles what was written.
const SectorSize = 512

// node is a file or, if names is not nil, a directory.
type node struct {
	modTime time.Time

	data   []byte // current content
	synced []byte // content at the last Sync
	// dirty holds the sectors whose current content may differ from the synced one, sizes apart.
	dirty map[int64]struct{}
	// touched holds the ranges of bytes that changed since the last Sync, ascending, disjoint and not adjacent.
	touched []span
	// low and high are the smallest and largest sizes since the last Sync: a crash may leave any size between.
	low, high int64

	allocated int64 // bytes reserved by Allocate; 0: none beyond the content

	names   map[string]*node // current entries
	durable map[string]*node // entries that a crash leaves
}

func newDir(now time.Time) *node {
	return &node{modTime: now, names: map[string]*node{}, durable: map[string]*node{}}
}

// span is a range of bytes; to is exclusive.
type span struct{ from, to int64 }

// touch adds a range to n.touched.
func (n *node) touch(from, to int64) {
	if from >= to {
		return
	}
	i := len(n.touched)
	for i > 0 && n.touched[i-1].to >= from {
		i--
	}
	j := i
	for j < len(n.touched) && n.touched[j].from <= to {
		from, to = min(from, n.touched[j].from), max(to, n.touched[j].to)
		j++
	}
	n.touched = slices.Replace(n.touched, i, j, span{from, to})
}

// changed reports whether byte i was changed since the last Sync.
func (n *node) changed(i int64) bool {
	_, found := slices.BinarySearchFunc(n.touched, i, func(s span, i int64) int {
		switch {
		case s.to <= i:
			return -1
		case s.from > i:
			return 1
		}
		return 0
	})
	return found
}

func (n *node) mark(from, to int64) {
	n.touch(from, to)
	n.low, n.high = min(n.low, int64(len(n.data))), max(n.high, int64(len(n.data)))
	if n.dirty == nil {
		n.dirty = map[int64]struct{}{}
	}
	for s := from / SectorSize; s*SectorSize < to; s++ {
		n.dirty[s] = struct{}{}
	}
}

func (n *node) grow(size int64) {
	old := int64(len(n.data))
	if size <= old {
		return
	}
	if size > int64(cap(n.data)) {
		data := make([]byte, size, max(2*int64(cap(n.data)), size, SectorSize))
		copy(data, n.data)
		n.data = data
	} else {
		n.data = n.data[:size]
		clear(n.data[old:])
	}
	n.mark(old, size)
}

func (n *node) write(p []byte, off int64) {
	n.grow(off + int64(len(p)))
	copy(n.data[off:], p)
	n.mark(off, off+int64(len(p)))
}

func (n *node) truncate(size int64) {
	old := int64(len(n.data))
	if size > old {
		n.grow(size)
		return
	}
	n.data = n.data[:size]
	n.mark(size, old)
}

// sync makes the current content the one that a crash leaves. Only dirty sectors are copied, so that syncing a large
// file often stays cheap.
func (n *node) sync() {
	size := int64(len(n.data))
	if size > int64(len(n.synced)) {
		if size > int64(cap(n.synced)) {
			synced := make([]byte, size, max(2*int64(cap(n.synced)), size))
			copy(synced, n.synced)
			n.synced = synced
		}
	}
	n.synced = n.synced[:size]
	for s := range n.dirty {
		if from := s * SectorSize; from < size {
			to := min(from+SectorSize, size)
			copy(n.synced[from:to], n.data[from:to])
		}
	}
	clear(n.dirty)
	n.touched, n.low, n.high = n.touched[:0], size, size
}

// syncAll is sync of n and of every file below it.
func (n *node) syncAll() {
	if n.names == nil && (len(n.dirty) > 0 || len(n.data) != len(n.synced)) {
		n.sync()
	}
	for _, child := range n.names {
		child.syncAll()
	}
}

func (n *node) size() int64 {
	sum := int64(len(n.data))
	for _, child := range n.names {
		sum += child.size()
	}
	return sum
}

// nameOp is one change of names: an addition, a removal, or both at once (rename).
type nameOp struct {
	delDir  *node
	delName string
	addDir  *node
	addName string
	node    *node
}

// follows reports whether op changes a name that earlier changed too.
func (op nameOp) follows(earlier nameOp) bool {
	same := func(d1 *node, n1 string, d2 *node, n2 string) bool { return d1 != nil && d1 == d2 && n1 == n2 }
	return same(op.delDir, op.delName, earlier.delDir, earlier.delName) ||
		same(op.delDir, op.delName, earlier.addDir, earlier.addName) ||
		same(op.addDir, op.addName, earlier.delDir, earlier.delName) ||
		same(op.addDir, op.addName, earlier.addDir, earlier.addName)
}

func (op nameOp) apply() {
	if op.delDir != nil && op.delDir.durable[op.delName] == op.node {
		delete(op.delDir.durable, op.delName)
	}
	if op.addDir != nil {
		op.addDir.durable[op.addName] = op.node
	}
}

// commitNames makes the pending changes of dir durable, with those of every directory that a rename ties to it.
func (fs *FS) commitNames(dir *node) {
	tied := map[*node]bool{dir: true}
	for changed := true; changed; {
		changed = false
		for _, op := range fs.pending {
			if op.delDir == nil || op.addDir == nil || tied[op.delDir] == tied[op.addDir] {
				continue
			}
			tied[op.delDir], tied[op.addDir] = true, true
			changed = true
		}
	}
	rest := fs.pending[:0]
	for _, op := range fs.pending {
		if tied[op.delDir] || tied[op.addDir] {
			op.apply()
		} else {
			rest = append(rest, op)
		}
	}
	clear(fs.pending[len(rest):])
	fs.pending = rest
}
