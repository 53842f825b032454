// Package tlstest makes certificate authorities and certificates for tests, good ones and bad ones. It keeps nothing on disk,
// starts no goroutine, and reads the clock of package time, so that it works in a bubble of synctest.
package tlstest
