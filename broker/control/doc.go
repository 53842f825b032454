// Package control is how a broker speaks to the active controller: a method call where the controller leads in this very
// process, Kafka's requests on a proven connection where it leads elsewhere (BrokerRegistration, BrokerHeartbeat,
// AlterPartition, AssignReplicasToDirs, AllocateProducerIds, and Envelope around what clients ask for).
//
// Access asks, and asks the next leader where one has gone. What may have been carried out is asked for again only if that
// changes nothing, also where the first copy is read after the answer to the second. Lifecycle is a broker's life under the
// controller: registration, heartbeats, controlled shutdown.
//
// An answer to a forwarded request says, in a tagged field of kaja's own, up to where the metadata has got with it; it is
// passed on once this node's own image is there, so that a client reads what it wrote from the node that it wrote to.
//
// Goroutines: Lifecycle's heartbeats, joined by its Close. No lock is held over a request.
package control
