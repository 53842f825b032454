//go:build sim

package xsync

import "sync"

// Mutex is a mutual-exclusion lock that may be held over file I/O. The zero value is unlocked; it must not be copied
// after first use.
type Mutex struct {
	once sync.Once
	slot chan struct{}
}

func (m *Mutex) init() { m.once.Do(func() { m.slot = make(chan struct{}, 1) }) }

// Lock waits until the mutex is free and takes it.
func (m *Mutex) Lock() {
	m.init()
	m.slot <- struct{}{}
}

// TryLock takes the mutex if it is free and reports whether it did.
func (m *Mutex) TryLock() bool {
	m.init()
	select {
	case m.slot <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock frees the mutex; unlocking a free one panics.
func (m *Mutex) Unlock() {
	m.init()
	select {
	case <-m.slot:
	default:
		panic("BUG: xsync: unlock of an unlocked mutex")
	}
}
