// Package peerclient sends Kafka requests to other nodes of the cluster, over connections on which both ends have proven
// who they are (raftctl/peer).
//
// A Client keeps one connection a node and purpose: what waits for long (a follower's fetch) gets a purpose of its own and
// keeps nobody else waiting. Requests of one connection are pipelined and answered in order. The version of a request is
// the newest that both ends know, as ApiVersions said when the connection was made. Nothing is sent twice: *Error says
// whether a request without an answer may have been carried out, and whoever sent it decides.
//
// Goroutines: one a connection, that makes it and then reads from it; Close joins them. The locks are held for no I/O:
// writers of a connection take turns by a channel.
package peerclient
