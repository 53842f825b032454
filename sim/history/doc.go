// Package history remembers what producers were told of their records, and compares it with what a topic holds in the
// end: a record is found lost, there twice, out of order, elsewhere than its producer was told, or sent by nobody. It
// knows nothing of brokers and starts no goroutine; tests and the chaos tool import it. History has a lock under which
// nobody waits.
package history
