package memfs

import (
	"bytes"
	"math/rand/v2"
	"slices"
)

// Fate says what a crash does with what was not synced.
type Fate uint8

const (
	// Coin keeps, loses or garbles each pending sector and keeps or loses each pending name by a seeded coin.
	Coin Fate = iota
	// Lose drops everything that was not synced.
	Lose
	// Keep drops nothing: a process that was killed on a machine that goes on.
	Keep
)

// Crash gives a new file system with what is left after a crash at this moment; what is left is durable there. The old
// one goes on unchanged, for processes that have not noticed. The same seed and history give the same result.
func (fs *FS) Crash(fate Fate, seed uint64) *FS {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c := crash{fate: fate, rng: rand.New(rand.NewPCG(seed, 0x6b616a61)), done: map[*node]*node{}}
	c.names(fs)
	out := New(fs.now)
	out.stamped = fs.stamped
	out.total = fs.total
	out.root = c.node(fs.root)
	return out
}

type crash struct {
	fate Fate
	rng  *rand.Rand
	left map[*node]map[string]*node // entries that survive, by directory
	done map[*node]*node            // old node to new
}

// names decides which pending changes of names survive. A change survives only with the earlier ones of the same names.
func (c *crash) names(fs *FS) {
	kept := make([]bool, len(fs.pending))
	for i := range fs.pending {
		kept[i] = c.fate == Keep || c.fate == Coin && c.rng.IntN(2) == 0
	}
	for i := len(fs.pending) - 1; i >= 0; i-- {
		for j := 0; kept[i] && j < i; j++ {
			kept[j] = kept[j] || fs.pending[i].follows(fs.pending[j])
		}
	}
	c.left = map[*node]map[string]*node{}
	entries := func(dir *node) map[string]*node {
		if c.left[dir] == nil {
			c.left[dir] = map[string]*node{}
			for name, n := range dir.durable {
				c.left[dir][name] = n
			}
		}
		return c.left[dir]
	}
	for i, op := range fs.pending {
		if !kept[i] {
			continue
		}
		if op.delDir != nil {
			delete(entries(op.delDir), op.delName)
		}
		if op.addDir != nil {
			entries(op.addDir)[op.addName] = op.node
		}
	}
}

func (c *crash) node(n *node) *node {
	if done := c.done[n]; done != nil {
		return done
	}
	if n.names == nil {
		data := c.content(n)
		out := &node{modTime: n.modTime, data: data, synced: bytes.Clone(data), low: int64(len(data)), high: int64(len(data))}
		c.done[n] = out
		return out
	}
	out := newDir(n.modTime)
	c.done[n] = out
	left, ok := c.left[n]
	if !ok {
		left = n.durable
	}
	names := make([]string, 0, len(left))
	for name := range left {
		names = append(names, name)
	}
	slices.Sort(names) // the coin must fall in the same order each time
	for _, name := range names {
		child := c.node(left[name])
		out.names[name], out.durable[name] = child, child
	}
	return out
}

// sizes are the smallest and the largest size that a crash may leave.
func (n *node) sizes() (low, high int64) {
	now, old := int64(len(n.data)), int64(len(n.synced))
	return min(now, old, n.low), max(now, old, n.high)
}

func (c *crash) content(n *node) []byte {
	switch c.fate {
	case Lose:
		return bytes.Clone(n.synced)
	case Keep:
		return bytes.Clone(n.data)
	}
	size, old := int64(len(n.data)), int64(len(n.synced))
	if low, high := n.sizes(); low != high {
		switch c.rng.IntN(3) {
		case 0:
			size = old
		case 1:
			size = low + c.rng.Int64N(high-low+1)
		}
	}
	out := make([]byte, size)
	copy(out, n.synced)
	dirty := make([]int64, 0, len(n.dirty))
	for s := range n.dirty {
		dirty = append(dirty, s)
	}
	slices.Sort(dirty)
	for _, s := range dirty {
		from := s * SectorSize
		if from >= size {
			break
		}
		to := min(from+SectorSize, size)
		switch c.rng.IntN(8) {
		case 0, 1, 2: // lost
		case 3: // garbled, but for bytes that were synced and not changed since
			for i := from; i < to; i++ {
				if r := byte(c.rng.Uint32()); n.changed(i) {
					out[i] = r
				}
			}
		default: // kept
			if from < int64(len(n.data)) {
				copy(out[from:to], n.data[from:])
			}
		}
	}
	return out
}
