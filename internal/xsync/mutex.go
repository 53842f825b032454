//go:build !sim

package xsync

import "sync"

// Mutex is a mutual-exclusion lock that may be held over file I/O. The zero value is unlocked; it must not be copied
// after first use.
type Mutex = sync.Mutex
