// Package wire holds what every layer says to every other in Kafka's own words: the identifier types, the frame and
// header codec, the price of decoding a request, and the segments that a response is made of.
//
// It does not decode request bodies (kmsg does), opens no connection, starts no goroutine and takes no lock.
package wire
