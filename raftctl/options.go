package raftctl

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/raftctl/peer"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/wire"
	"github.com/prometheus/client_golang/prometheus"
)

// Options is what a controller is opened with.
type Options struct {
	FS          vfs.FS
	Dir         string // of the raft store; made if missing
	ClusterID   string
	NodeID      wire.BrokerID
	DirectoryID wire.UUID // of the metadata directory
	Seed        uint64    // of placements
	NewUUID     func() wire.UUID
	Logger      *slog.Logger
	Registerer  prometheus.Registerer // nil: no metrics
	Configs     Configs
	Defaults    Defaults
	// Publish takes every committed change, in log order, from one goroutine. A request that changes metadata is
	// answered after Publish returned for its records, so Publish must not wait for one. The first call, made by Open,
	// has the whole image as its delta. Its ctx ends with the controller.
	Publish func(ctx context.Context, delta *image.Delta, img *image.Image)
	// Streams carries raft to peers; nil for a node that is the only controller.
	Streams StreamLayer
	// Join makes an empty store wait for the controllers that hold the metadata; false makes it the first of a new
	// cluster.
	Join bool
	// Founders is the voters that a new cluster begins with, this node among them; nil for this node alone. It counts for
	// an empty store only. One node founds, the others join it.
	Founders []peer.ID
	// SessionTimeout is broker.session.timeout.ms: how long a broker may be silent. 0: 9 s. A controller without peers
	// fences nobody: the only broker is its own.
	SessionTimeout time.Duration
	// Balance is how often leaderships go back to the preferred leaders that can take them; 0: never.
	Balance time.Duration
	// InternalFactors are the internal topics whose replication factor was left to kaja, and what it is to be once so many
	// brokers are there; nil: none.
	InternalFactors map[string]int
	// Features are the levels that this release can work at.
	Features map[string]image.VersionRange
	// Levels are the levels of features that a new cluster begins with, where they differ from a new Kafka's; a feature that is
	// not in them begins with 0. nil: all as a new Kafka's.
	Levels map[string]int16
	// Status asks a member how far it is; nil: nobody is given a vote, and Quorum knows brokers only.
	Status func(ctx context.Context, id peer.ID) (NodeStatus, error)
	// Stable is how long a member must have been there and caught up before it is given a vote; 0: 10 s.
	Stable time.Duration
	// Reach connects to a broker's listener for other brokers, and closes the connection; nil: silence alone counts.
	Reach func(ctx context.Context, b *image.Broker) error
	// ReachNode connects to where a node meets others, and closes the connection; nil: silence alone counts.
	ReachNode func(ctx context.Context, id peer.ID) error
	// DiskHangs reports whether a disk of this node does not answer: the node then neither leads nor stands. nil: never.
	DiskHangs func() bool
	// SnapshotBytes is how many bytes of entries are applied before the next snapshot; 0: 20 MiB, as in Kafka.
	SnapshotBytes int64
	// Holds says that the node's directories hold data: an empty store is then refused with ErrNoMetadata, since a new
	// cluster would not know that data.
	Holds bool
}

func (o *Options) check() error {
	switch {
	case o.FS == nil || o.Dir == "" || o.Logger == nil || o.Configs == nil || o.Publish == nil || o.NewUUID == nil:
		return errors.New("controller options are incomplete")
	case o.ClusterID == "" || o.NodeID < 0 || o.DirectoryID.IsZero():
		return errors.New("controller has no identity")
	case o.Streams == nil && (o.Join || len(o.Founders) > 0):
		return errors.New("a controller with peers needs streams to them")
	case o.Join && len(o.Founders) > 0:
		return errors.New("a controller joins or founds, not both")
	}
	return nil
}

const (
	snapshotBytes = 20 << 20  // of entries since the last snapshot
	snapshotAge   = time.Hour // a snapshot this old is renewed if anything changed

	trailingLogs  = 1024    // entries that stay in the log behind a snapshot
	queuedOps     = 1024    // requests that wait for the decide loop; a caller beyond waits itself
	pendingOps    = 4096    // decisions under way; the decide loop waits beyond
	batchOps      = 512     // requests that one entry holds at most
	batchBytes    = 1 << 20 // bytes of an entry beyond which it takes no more requests
	queuedChanges = 1024    // committed changes that wait for Publish; the FSM waits beyond

	// electionTimeout is, with peers, how long a follower does without its leader before it stands for election. A leader
	// steps down when it has not heard of a majority for as long. It is half of broker.session.timeout.ms, which it does not
	// lengthen then: the session of the node that led counts from its last word.
	electionTimeout = 750 * time.Millisecond
	defaultSession  = 9 * time.Second // broker.session.timeout.ms
	probeTimeout    = 1 * time.Second
	pilotTick       = 1 * time.Second // how often the voters are looked at
	contactAge      = 2 * pilotTick   // a node that has not answered raft for longer is not asked how far it is
	defaultStable   = 10 * time.Second
	raiseTick       = 1 * time.Second // how often internal topics are looked at
	handOverTime    = 4 * electionTimeout
	rpcTimeout      = 2 * time.Second // of one message to a peer; a snapshot gets more by its size
	// loneTimeout is how often a lone voter looks whether it still has a quorum, which it always has; it does not wait for
	// it to be elected (hasten).
	loneTimeout = 1 * time.Minute
	stopTimeout = 10 * time.Second
)
