// Package api answers Kafka's requests: one file per API key, each a small struct with the few things it depends on.
// A handler validates, authorizes, calls one service and shapes the response. errcode.go alone turns errors into codes.
//
// It starts no goroutine. A handler runs on the connection's reader; late answers are built on its writer.
package api
