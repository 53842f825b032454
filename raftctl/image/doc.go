// Package image is the cluster's metadata as an immutable value. Records of the metadata log turn one Image into the
// next, sharing what did not change, and a Delta says what did. Everything outside the controller reads metadata
// through an Image and nothing else.
//
// Pure: no clock, no I/O, no lock, no goroutine.
package image
