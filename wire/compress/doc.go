// Package compress holds the five codecs of record batches: none, gzip, snappy, lz4 and zstd, as Kafka's clients write
// them and as Kafka's broker accepts them, behind one Codecs value.
//
// Every decompression has a hard limit on its output. A payload that inflates beyond it (a bomb) or that lies about its
// size is refused before more than the limit plus a constant was allocated; zstd windows are bounded by MaxWindow.
//
// It does not know record batches (wire/batch does), starts no goroutine and has no package state: pools and coders are
// fields of Codecs, so that each broker, and each simulation, has its own. Locks: one mutex over the lazily made zstd
// coders, held for a map look-up only.
package compress
