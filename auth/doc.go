// Package auth says who a connection is and what it may do. For now every listener is PLAINTEXT, every principal is
// User:ANONYMOUS and everything is allowed; the types are those that SASL, TLS and ACLs will fill.
package auth
