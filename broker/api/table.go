package api

import (
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/control"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/txn"
	"github.com/kajamq/kaja/wire"
	"github.com/kajamq/kaja/wire/compress"
	"github.com/prometheus/client_golang/prometheus"
)

// Entry is one API as this node serves it.
type Entry struct {
	server.Route
	// Controller: served on controller listeners, too.
	Controller bool
	// Node: served only on connections whose other end has proven to be a node of this cluster, on every listener that
	// takes those.
	Node bool
}

// Services are what the handlers need of the broker. Each handler is given its own few of them.
type Services struct {
	Config     *config.Config
	NodeID     wire.BrokerID
	ClusterID  string
	Images     imageSource
	Endpoints  endpointFinder
	Partitions interface {
		replicaFinder
		followerWaits
		dataDirs
		replicaMover
	}
	Controller *raftctl.Controller
	// Active is the way to the active controller, wherever it is.
	Active *control.Access
	// QuorumEndpoints says where the members of the quorum take requests.
	QuorumEndpoints func(node wire.BrokerID) (image.Endpoint, bool)
	// Ask sends a request to another node; nil without others.
	Ask NodeCaller
	// AskCoordinators is Ask on connections on which answers may wait; nil without other nodes.
	AskCoordinators NodeCaller
	ProducerIDs     producerIDs
	// NewSessionID draws a fetch session id greater than 0.
	NewSessionID func() int32
	Groups       *groupcoord.Service
	Txns         *txn.Service
	Codecs       *compress.Codecs
	Wall         func() time.Time
	Registerer   prometheus.Registerer // nil: no metrics
	Routes       RouteLister
	Loggers      Loggers // nil: none
	// ControllerListener says of a listener's name that it serves controllers.
	ControllerListener func(name string) bool
}

// Table is every API that this node serves, in the order of the keys: what ApiVersions advertises, what
// docs/protocol-support.md lists, and what the coverage test asks for. Ranges are Kafka 4.4's, inclusive.
func Table(s Services) []Entry {
	fwd := &forwarder{active: s.Active, inner: map[int16]server.Route{}}
	offsets, txns := NewOffsetsTopic(s.Images, s.Active, s.Config), NewTxnTopic(s.Images, s.Active, s.Config)
	enroll := newEnroller(s.Txns, s.Config, s.Images, s.NodeID, s.Ask)
	fetch := &fetch{
		images: s.Images, parts: s.Partitions, followers: s.Partitions, endpoints: s.Endpoints, maxBytes: s.Config.Int("fetch.max.bytes"),
		sessions: newFetchSessions(s.Config.Int("max.incremental.fetch.session.cache.slots"), time.Now, s.NewSessionID),
	}
	alter := alterConfigs{alterer: s.Active, node: s.NodeID, loggers: s.Loggers}
	fetch.sessions.register(s.Registerer)
	// The configs of one broker are altered at that broker alone, which looks through them; the controller takes the rest.
	passed := alterConfigs{alterer: s.Controller, node: wire.NoBroker}
	fwd.take(33, 0, 2, passed.handle)
	fwd.take(44, 0, 1, incrementalAlterConfigs{passed}.handle)
	return []Entry{
		// Produce is listed from 0 because librdkafka before 2025 takes a higher minimum for a broker without compression
		// (KAFKA-18659); versions 0 to 2 close the connection, as in Kafka.
		{Route: server.Route{Key: 0, Min: 0, Max: 13, FirstServed: 3, Handle: (&produce{images: s.Images, parts: s.Partitions, endpoints: s.Endpoints, codecs: s.Codecs, wall: s.Wall, enroll: enroll}).handle}},
		data(1, 4, 18, fetch.handle),
		data(2, 1, 11, (&listOffsets{images: s.Images, parts: s.Partitions}).handle),
		data(3, 0, 13, metadata{images: s.Images, endpoints: s.Endpoints, creator: s.Active, offsets: offsets, txns: txns, autoCreate: s.Config.Bool("auto.create.topics.enable")}.handle),
		data(8, 2, 10, offsetCommit{image: s.Images.Image, groups: s.Groups}.handle),
		data(9, 1, 10, offsetFetch{image: s.Images.Image, groups: s.Groups}.handle),
		data(10, 0, 6, findCoordinator{image: s.Images.Image, endpoints: s.Endpoints, topic: offsets, groups: s.Groups, txnTopic: txns, txns: s.Txns, node: s.NodeID, remote: newRemoteCoordinators(s.AskCoordinators)}.handle),
		data(11, 0, 9, joinGroup{s.Groups}.handle),
		data(12, 0, 4, heartbeat{s.Groups}.handle),
		data(13, 0, 5, leaveGroup{s.Groups}.handle),
		data(14, 0, 5, syncGroup{s.Groups}.handle),
		data(15, 0, 6, describeGroups{s.Groups}.handle),
		data(16, 0, 5, listGroups{s.Groups}.handle),
		admin(18, 0, 5, (&apiVersions{routes: s.Routes, image: s.Images.Image, clusterID: s.ClusterID, nodeID: s.NodeID, controllerListener: s.ControllerListener}).handle),
		fwd.entry(19, 2, 7, createTopics{images: s.Images, creator: s.Controller, config: s.Config, node: s.NodeID}.handle),
		fwd.entry(20, 1, 6, deleteTopics{deleter: s.Controller, enabled: s.Config.Bool("delete.topic.enable")}.handle),
		data(21, 0, 2, (&deleteRecords{images: s.Images, parts: s.Partitions}).handle),
		data(22, 0, 5, initProducerID{s.ProducerIDs, s.Txns}.handle),
		data(23, 2, 4, (&offsetForLeaderEpoch{images: s.Images, parts: s.Partitions}).handle),
		data(24, 0, 5, addPartitionsToTxn{image: s.Images.Image, txns: s.Txns}.handle),
		data(25, 0, 4, addOffsetsToTxn{image: s.Images.Image, topic: offsets, groups: s.Groups, txns: s.Txns}.handle),
		data(26, 0, 5, endTxn{s.Txns}.handle),
		data(27, 1, 2, (&writeTxnMarkers{images: s.Images, parts: s.Partitions, groups: s.Groups}).handle),
		data(28, 0, 6, txnOffsetCommit{image: s.Images.Image, parts: s.Partitions, groups: s.Groups, enroll: enroll}.handle),
		admin(32, 1, 4, describeConfigs{images: s.Images, config: s.Config, node: s.NodeID, loggers: s.Loggers}.handle),
		admin(33, 0, 2, alter.handle),
		data(34, 1, 2, (&alterReplicaLogDirs{dirs: s.Partitions}).handle),
		data(35, 1, 5, (&describeLogDirs{images: s.Images, dirs: s.Partitions, nodeID: s.NodeID}).handle),
		fwd.entry(37, 0, 3, createPartitions{s.Controller}.handle),
		data(42, 0, 3, deleteGroups{s.Groups}.handle),
		fwd.entry(43, 0, 2, electLeaders{images: s.Images, elector: s.Controller}.handle),
		admin(44, 0, 1, incrementalAlterConfigs{alter}.handle),
		data(47, 0, 0, offsetDelete{image: s.Images.Image, groups: s.Groups}.handle),
		fwd.entry(55, 0, 2, describeQuorum{quorum: s.Controller, endpoints: s.QuorumEndpoints}.handle),
		node(56, 2, 3, alterPartition{s.Controller}.handle),
		fwd.entry(57, 0, 2, updateFeatures{s.Controller}.handle),
		node(58, 0, 0, (&envelope{inner: fwd.inner, active: s.Active, images: s.Images, refused: notController}).handle),
		admin(60, 0, 2, describeCluster{images: s.Images, endpoints: s.Endpoints, controllerListener: s.ControllerListener, controllers: s.QuorumEndpoints}.handle),
		data(61, 0, 0, (&describeProducers{images: s.Images, parts: s.Partitions}).handle),
		node(62, 0, 4, brokerRegistration{controller: s.Controller, clusterID: s.ClusterID}.handle),
		node(63, 0, 2, (&brokerHeartbeat{controller: s.Controller, patience: s.Config.Duration("broker.session.timeout.ms") / 3, conns: map[*server.Conn]wire.BrokerEpoch{}}).handle),
		fwd.entry(64, 0, 0, unregisterBroker{s.Controller}.handle),
		data(65, 0, 0, describeTransactions{s.Txns}.handle),
		data(66, 0, 2, listTransactions{s.Txns}.handle),
		node(67, 0, 0, allocateProducerIDs{s.Controller}.handle),
		node(73, 0, 0, assignReplicasToDirs{s.Controller}.handle),
		data(74, 0, 1, listConfigResources{s.Images}.handle),
		data(75, 0, 0, describeTopicPartitions{images: s.Images, endpoints: s.Endpoints, limit: s.Config.Int("max.request.partition.size.limit")}.handle),
	}
}

// data, admin and node make the rows of what brokers serve, of what controllers serve, too, and of what nodes that have
// proven who they are are served.
func data(key, min, max int16, h server.HandlerFunc) Entry {
	return Entry{Route: server.Route{Key: key, Min: min, Max: max, Handle: h}}
}

func admin(key, min, max int16, h server.HandlerFunc) Entry {
	return Entry{Route: server.Route{Key: key, Min: min, Max: max, Handle: h}, Controller: true}
}

func node(key, min, max int16, h server.HandlerFunc) Entry {
	return Entry{Route: server.Route{Key: key, Min: min, Max: max, Handle: h}, Node: true}
}
