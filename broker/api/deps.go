package api

import (
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// What more than one group of handlers depends on.

// imageSource gives the metadata that a whole request is answered from.
type imageSource interface {
	Image() *image.Image
}

// endpointFinder says under which address a client of conn reaches a broker; false if it can't.
type endpointFinder interface {
	Endpoint(conn *server.Conn, b wire.BrokerID) (host string, port int32, ok bool)
}

// replicaFinder finds this broker's replicas.
type replicaFinder interface {
	ByName(topic string, p wire.PartitionID) (*replica.Partition, bool)
	Partition(topic wire.UUID, p wire.PartitionID) (*replica.Partition, bool)
}
