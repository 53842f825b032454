// Package peer is how nodes of a cluster prove to each other who they are before they speak: the preamble that opens a
// connection between nodes, the handshake after it, and raft's stream layer on top.
//
// A connection between nodes begins with eight bytes: 0xff 'K' 'J' 'A', the version of the handshake, the kind of what
// follows, two zero bytes. The first four are a negative number where a Kafka client has the length of its first request,
// so one port serves both. Then, each message as a big-endian uint16 length and its bytes:
//
//	dialer    hello   cluster id, node id, directory id, nonce
//	acceptor  hello   cluster id, node id, directory id, nonce
//	dialer    proof   HMAC-SHA256(secret, "dialer" ‖ preamble ‖ both hellos)
//	acceptor  proof   HMAC-SHA256(secret, "acceptor" ‖ preamble ‖ both hellos)
//
// Who connects proves itself first, so that somebody who only dials learns nothing that could be guessed against. Either
// side breaks off in silence: at a wrong cluster, an unexpected node, a wrong proof, a message that is too long, or after
// a time. The handshake says who is at the other end; it does not encrypt, so a network on which strangers can write into
// connections of others needs TLS below it.
//
// Credentials with TLS bring it: connections are made secure before the handshake (Credentials.Dialer, TLS.Server), and what the
// proofs are made with is the secret, if there is one, and then 32 bytes that the two ends of this TLS connection share (RFC 5705).
// Without a secret the certificates are the proof, which both sides have shown by then.
//
// A connection of kind Call carries one question and its answer, each JSON after a big-endian uint32 length: Former uses it
// to form a cluster out of nodes that list each other. Every node lets one node found the cluster, once for all, and writes
// that down before it says so; that is what keeps two clusters from coming into being.
//
// Goroutines: Former asks the listed nodes at once and joins the goroutines before it goes on; nothing else starts one. The
// package imports neither raft nor Kafka's messages. Streams' lock is never held while waiting; Former's is held while
// Adopt writes.
package peer
