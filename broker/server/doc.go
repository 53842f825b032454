// Package server owns the listeners and connections: frames in, responses out in request order, the memory budget and
// every limit that keeps one client from hurting the others. It knows API keys and versions only through the routes it
// is given, and nothing of what they mean.
//
// One connection has no influence on another but through the memory budget: there is no queue of requests that all of
// them share, so the handshake of a new client never waits behind another client's fetch. Within a connection requests
// are pipelined: the next one is read as soon as the handler of the previous one has returned, whether or not it has
// been answered. When the budget or a connection's slots are used up the connection is not read; nothing is refused
// and nothing grows.
//
// A read takes what has arrived, several requests of a client that pipelines among it; their answers leave together,
// once the reader would block for more input, after a bound of answers and bytes, or after a millisecond.
//
// On a listener with TLS the reader begins with its handshake, which has a deadline of its own and counts as a connection like any
// other; nothing is read before its end. There is no sendfile there: what it would send is copied.
//
// Goroutines: one acceptor a bound address, one reader a connection, one writer a connection while responses are
// pending that the reader does not write itself. All are joined by Server.Close. Timers: one per server, and only while
// a request waits for the budget; one per connection whose peer has stopped sending while answers are owed; one per connection
// while ready answers are kept back.
//
// Locks: Server.mu, conn.mu and budget.mu are leaves: nothing is called and nothing blocks while one is held, except
// that conn.mu is waited on by its own condition.
package server
