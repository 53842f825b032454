package log

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/kajamq/kaja/wire"
)

const (
	// keySlotBytes is what one slot of a keyMap costs.
	keySlotBytes = 24
	// keyShards is the number of tables of a keyMap. Each grows alone, so that growing needs little besides.
	keyShards    = 64
	firstKeySlot = 16 // slots of a table that gets its first key
)

// keyMap remembers the newest offset of every key that one round of compaction sees. It keeps 128 bits of the key's
// SHA-256 instead of the key: that two keys ever agree in them is less likely than a disk that lies. It grows with what
// is put into it and never beyond its limit.
type keyMap struct {
	shards [keyShards]keyTable
	limit  int // slots of all tables together
	slots  int
	load   float64 // a table grows before it is fuller than this
	keys   int
}

type keyTable struct {
	slots []keySlot
	used  int
}

// keySlot is free while next is 0.
type keySlot struct {
	hi, lo uint64
	next   wire.Offset // the key's newest offset, plus one
}

// newKeyMap makes a map that takes at most maxBytes, but always room for one key.
func newKeyMap(maxBytes int64, load float64) *keyMap {
	if !(load > 0 && load < 1) {
		load = 0.9
	}
	return &keyMap{limit: int(max(maxBytes/keySlotBytes, firstKeySlot)), load: load}
}

func keyHash(key []byte) (hi, lo uint64) {
	sum := sha256.Sum256(key)
	return binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])
}

// at gives the slot of a key, or the free one where it belongs; the table has a free slot.
func (t *keyTable) at(hi, lo uint64) *keySlot {
	n := uint64(len(t.slots))
	for i := (lo >> 16) % n; ; i++ {
		if i == n {
			i = 0
		}
		s := &t.slots[i]
		if s.next == 0 || s.hi == hi && s.lo == lo {
			return s
		}
	}
}

// put notes that key is at o; offsets of one key ascend. It is false when there is no room for another key.
func (m *keyMap) put(key []byte, o wire.Offset) bool {
	hi, lo := keyHash(key)
	t := &m.shards[hi%keyShards]
	if len(t.slots) > 0 {
		if s := t.at(hi, lo); s.next != 0 {
			s.next = o + 1
			return true
		}
	}
	if float64(t.used+1) > float64(len(t.slots))*m.load && !m.grow(t) {
		return false
	}
	*t.at(hi, lo) = keySlot{hi, lo, o + 1}
	t.used++
	m.keys++
	return true
}

// grow gives t half as many slots again; false when the limit does not allow it.
func (m *keyMap) grow(t *keyTable) bool {
	old := t.slots
	n := max(firstKeySlot, len(old)+len(old)/2)
	if m.slots-len(old)+n > m.limit {
		return false
	}
	m.slots += n - len(old)
	t.slots = make([]keySlot, n)
	for _, s := range old {
		if s.next != 0 {
			*t.at(s.hi, s.lo) = s
		}
	}
	return true
}

// newest gives the offset of key, NoOffset if it was not put.
func (m *keyMap) newest(key []byte) wire.Offset {
	hi, lo := keyHash(key)
	t := &m.shards[hi%keyShards]
	if len(t.slots) == 0 {
		return wire.NoOffset
	}
	return t.at(hi, lo).next - 1
}

// bytes is the memory of all tables.
func (m *keyMap) bytes() int64 { return int64(m.slots) * keySlotBytes }
