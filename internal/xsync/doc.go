// Package xsync holds the mutex that may cover file I/O.
//
// A goroutine that waits for a sync.Mutex is not durably blocked for testing/synctest, so a simulated slow disk that
// sleeps while the lock is held would hang the bubble. Under build tag "sim" the mutex is therefore made of a channel,
// which synctest understands; without the tag it is sync.Mutex itself. It starts no goroutine.
package xsync
