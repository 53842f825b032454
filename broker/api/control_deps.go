package api

import (
	"context"

	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the handlers of the controller's own APIs depend on.

// brokerController takes what brokers tell and ask the active controller; raftctl.Controller is one.
type brokerController interface {
	RegisterBroker(ctx context.Context, reg raftctl.Registration) (wire.BrokerEpoch, error)
	Heartbeat(ctx context.Context, hb raftctl.Heartbeat) (raftctl.HeartbeatReply, error)
	AlterPartitions(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, changes []raftctl.ISRChange) ([]raftctl.ISRResult, error)
	AssignDirs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch, assignments []raftctl.DirAssignment) ([]*raftctl.Error, error)
	AllocateProducerIDs(ctx context.Context, id wire.BrokerID, epoch wire.BrokerEpoch) (raftctl.ProducerIDs, error)
	// Suspect is told when the connection of a broker's heartbeats has ended.
	Suspect(id wire.BrokerID, epoch wire.BrokerEpoch)
}

// activeController is the way to the active controller, wherever it is; control.Access is one.
type activeController interface {
	topicCreator
	configAlterer
	// Alone: there are no other nodes, and this one always leads.
	Alone() bool
	Leading() bool
	Forward(ctx context.Context, f control.Forwarded) (kmsg.Response, error)
}

// quorumAdmin is what is asked of the active controller about the cluster itself; raftctl.Controller is one.
type quorumAdmin interface {
	Quorum(ctx context.Context) (raftctl.Quorum, error)
	UpdateFeatures(ctx context.Context, updates []raftctl.FeatureUpdate, validateOnly bool) error
	UnregisterBroker(ctx context.Context, id wire.BrokerID) error
	ElectLeaders(ctx context.Context, kind raftctl.Election, partitions []raftctl.PartitionName) ([]raftctl.ElectionResult, error)
}

// controllerEndpoints says where a member of the quorum takes requests; false: not known.
type controllerEndpoints func(node wire.BrokerID) (image.Endpoint, bool)
