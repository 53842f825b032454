// Package broker is the composition root: it makes a broker of its parts (identity, controller, replicas, coordinators,
// server), starts them in order, carries published metadata to them, and ends them in reverse. It decides nothing that a
// part could decide.
//
// It owns who the node is (identity*.go: meta.properties and the lock of each log directory), under which address a
// client reaches it (addresses.go), and the metrics and health pages (httpd.go).
//
// Goroutines: the HTTP server's. All others belong to the parts, which Close ends and joins.
package broker
