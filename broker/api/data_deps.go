package api

import (
	"github.com/kajamq/kaja/broker/replica"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What the handlers of the data plane (Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords,
// DescribeLogDirs) depend on.

// followerWaits is what fetches of replicas need besides their partitions; *replica.Manager is one.
type followerWaits interface {
	CheckFollower(id wire.BrokerID, epoch wire.BrokerEpoch) error
	FollowerTurn(id wire.BrokerID) replica.FollowerTurn
}

// isPeer reports whether the request comes from a connection that has proven to be of broker id.
func isPeer(req *server.Request, id wire.BrokerID) bool {
	peer, ok := req.Conn.Peer()
	return ok && peer.NodeID == id
}

// leaderHint is what a client is told with NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH (KIP-951).
type leaderHint struct {
	leader wire.BrokerID
	epoch  wire.LeaderEpoch
	known  bool // the leader has an address for this client
	host   string
	port   int32
	rack   *string // nil: none
}

// hintLeader finds the leader in the image, as the metadata has it now. Where there is none, or none that this client can be told the
// address of, it hints nothing at all: librdkafka does not ask for metadata after a hint, so a hint of "none" leaves it without a leader
// until its next refresh, minutes later.
func hintLeader(img *image.Image, endpoints endpointFinder, conn *server.Conn, topic string, p wire.PartitionID) leaderHint {
	none := leaderHint{leader: wire.NoBroker, epoch: wire.NoLeaderEpoch}
	part, ok := img.Partition(topic, p)
	if !ok || part.Leader == wire.NoBroker {
		return none
	}
	h := leaderHint{leader: part.Leader, epoch: part.LeaderEpoch}
	if h.host, h.port, h.known = endpoints.Endpoint(conn, part.Leader); !h.known {
		return none
	}
	if b, ok := img.Broker(part.Leader); ok && b.HasRack {
		h.rack = &b.Rack
	}
	return h
}

// findReplica gives this broker's replica of a partition that the image has. The errors are those of a broker that is
// asked for a partition it does not have: 3 when the cluster does not have it either, else 6.
func findReplica(img *image.Image, parts replicaFinder, topic string, p wire.PartitionID) (*replica.Partition, error) {
	if found, ok := parts.ByName(topic, p); ok {
		return found, nil
	}
	if _, ok := img.Partition(topic, p); ok {
		return nil, kerr.NotLeaderForPartition
	}
	return nil, kerr.UnknownTopicOrPartition
}
