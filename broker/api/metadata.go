package api

import (
	"context"
	"time"

	"github.com/kajamq/kaja/auth"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metadata answers Metadata (key 3), versions 0-13. v0: no topics means all, and dead replicas are an error (9). v1: null
// means all, empty none; v4 the client says whether topics may be created; v5 offline replicas; v6 72 instead of 5 where
// a leader lacks the listener; v7 leader epochs; v8 authorized operations (the cluster's until v10); v10 topic ids; v12
// topics asked for by id. Errors by topic: 3 (also while it is being created), 17, 42, 100; by partition: 5, 9, 72.
type metadata struct {
	images     imageSource
	endpoints  endpointFinder
	creator    topicCreator
	offsets    *OffsetsTopic
	txns       *TxnTopic
	autoCreate bool // auto.create.topics.enable
}

// autoCreateWait bounds how long an answer waits for topics that it creates.
const autoCreateWait = 5 * time.Second

func (h metadata) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.MetadataRequest)
	resp := msg.ResponseKind().(*kmsg.MetadataResponse)
	all := msg.Topics == nil || req.Version == 0 && len(msg.Topics) == 0
	if !all && req.Version < 12 && badTopics(msg) {
		h.refuse(msg, resp)
		w.Reply(resp)
		return
	}
	img := h.images.Image()
	a := &metadataAnswer{img: img, conn: req.Conn, version: req.Version, endpoints: h.endpoints}
	a.cluster(resp)
	switch {
	case all:
		for t := range img.Topics() {
			resp.Topics = append(resp.Topics, a.topic(t))
		}
	default:
		h.asked(ctx, msg, a, resp)
	}
	if msg.IncludeTopicAuthorizedOperations {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.ErrorCode != kerr.UnknownTopicID.Code {
				t.AuthorizedOperations = auth.TopicOperations()
			}
		}
	}
	if msg.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = auth.ClusterOperations()
	}
	w.Reply(resp)
}

// badTopics reports whether a request below v12 asks for a topic without a name or by id.
func badTopics(msg *kmsg.MetadataRequest) bool {
	for _, t := range msg.Topics {
		if t.Topic == nil || !wire.UUID(t.TopicID).IsZero() {
			return true
		}
	}
	return false
}

// refuse answers INVALID_REQUEST for every topic. The response has no null names in these versions.
func (h metadata) refuse(msg *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	empty := ""
	for _, t := range msg.Topics {
		rt := kmsg.NewMetadataResponseTopic()
		rt.ErrorCode, rt.Topic, rt.TopicID = kerr.InvalidRequest.Code, t.Topic, t.TopicID
		if rt.Topic == nil {
			rt.Topic = &empty
		}
		resp.Topics = append(resp.Topics, rt)
	}
	resp.ControllerID = -1
}

// asked answers for the topics that the request names: by id if it names any by id.
func (h metadata) asked(ctx context.Context, msg *kmsg.MetadataRequest, a *metadataAnswer, resp *kmsg.MetadataResponse) {
	byID := false
	for _, t := range msg.Topics {
		byID = byID || !wire.UUID(t.TopicID).IsZero()
	}
	seen := make(map[string]struct{}, len(msg.Topics))
	var missing []string
	for _, t := range msg.Topics {
		id, name := wire.UUID(t.TopicID), ""
		if t.Topic != nil {
			name = *t.Topic
		}
		if byID {
			if id.IsZero() {
				continue
			}
			name = string(id[:])
		}
		if _, dup := seen[name]; dup {
			continue
		}
		seen[name] = struct{}{}
		topic, ok := a.img.Topic(name)
		if byID {
			topic, ok = a.img.TopicByID(id)
		}
		switch {
		case ok:
			resp.Topics = append(resp.Topics, a.topic(topic))
		case byID:
			rt := kmsg.NewMetadataResponseTopic()
			rt.ErrorCode, rt.TopicID = kerr.UnknownTopicID.Code, id
			resp.Topics = append(resp.Topics, rt)
		default:
			missing = append(missing, name)
		}
	}
	if h.autoCreate && msg.AllowAutoTopicCreation {
		h.create(ctx, missing)
	}
	for _, name := range missing {
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.IsInternal, rt.ErrorCode = &name, image.IsInternal(name), kerr.UnknownTopicOrPartition.Code
		if raftctl.InvalidTopicName(name) != "" {
			rt.ErrorCode = kerr.InvalidTopicException.Code
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// create makes the topics that may be made. How it went is not in the answer, which is "unknown topic" as in Kafka: the
// client asks again.
func (h metadata) create(ctx context.Context, names []string) {
	var topics []raftctl.NewTopic
	for _, name := range names {
		switch {
		case name == image.OffsetsTopic:
			topics = append(topics, h.offsets.request())
		case name == image.TxnStateTopic:
			topics = append(topics, h.txns.request())
		case image.IsInternal(name) || raftctl.InvalidTopicName(name) != "":
		default:
			topics = append(topics, raftctl.NewTopic{Name: name, Partitions: -1, ReplicationFactor: -1})
		}
	}
	if len(topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, autoCreateWait)
	defer cancel()
	_, _ = h.creator.CreateTopics(ctx, topics, false)
}

// metadataAnswer builds the parts of one answer from one image.
type metadataAnswer struct {
	img       *image.Image
	conn      *server.Conn
	version   int16
	endpoints endpointFinder
}

// alive reports whether clients of this listener are told of the broker.
func (a *metadataAnswer) alive(id wire.BrokerID) bool {
	b, ok := a.img.Broker(id)
	if !ok || b.Fenced {
		return false
	}
	_, _, ok = a.endpoints.Endpoint(a.conn, id)
	return ok
}

func (a *metadataAnswer) cluster(resp *kmsg.MetadataResponse) {
	id := a.img.ClusterID()
	resp.ClusterID = &id
	resp.ControllerID = int32(wire.NoBroker)
	for b := range a.img.Brokers() {
		host, port, ok := a.endpoints.Endpoint(a.conn, b.ID)
		if b.Fenced || !ok {
			continue
		}
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = int32(b.ID), host, port, rackOf(b)
		resp.Brokers = append(resp.Brokers, rb)
		// Any broker takes what the controller decides; clients are pointed to the controller itself where it is one.
		if resp.ControllerID < 0 || b.ID == a.img.ControllerID() {
			resp.ControllerID = int32(b.ID)
		}
	}
}

func rackOf(b *image.Broker) *string {
	if !b.HasRack {
		return nil
	}
	return &b.Rack
}

func (a *metadataAnswer) topic(t *image.Topic) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.IsInternal = &t.Name, t.ID, t.Internal()
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, len(t.Partitions))
	for _, p := range t.Partitions {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.LeaderEpoch = int32(p.ID), int32(p.LeaderEpoch)
		rp.Replicas, rp.ISR = raw(p.Replicas), raw(p.ISR)
		rp.OfflineReplicas = a.offline(p)
		rp.ErrorCode, rp.Leader = a.leader(p)
		if a.version == 0 {
			a.onlyAlive(p, &rp)
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

// leader gives the leader, or −1 and the reason.
func (a *metadataAnswer) leader(p *image.Partition) (int16, int32) {
	if a.alive(p.Leader) {
		return 0, int32(p.Leader)
	}
	b, ok := a.img.Broker(p.Leader)
	if ok && !b.Fenced && a.version >= 6 {
		return kerr.ListenerNotFound.Code, int32(wire.NoBroker)
	}
	return kerr.LeaderNotAvailable.Code, int32(wire.NoBroker)
}

// onlyAlive is what v0 clients are told: live replicas, and an error when some are not.
func (a *metadataAnswer) onlyAlive(p *image.Partition, rp *kmsg.MetadataResponseTopicPartition) {
	rp.Replicas, rp.ISR = a.keepAlive(p.Replicas), a.keepAlive(p.ISR)
	if rp.ErrorCode == 0 && (len(rp.Replicas) < len(p.Replicas) || len(rp.ISR) < len(p.ISR)) {
		rp.ErrorCode = kerr.ReplicaNotAvailable.Code
	}
}

func (a *metadataAnswer) keepAlive(ids []wire.BrokerID) []int32 {
	out := make([]int32, 0, len(ids))
	for _, id := range ids {
		if a.alive(id) {
			out = append(out, int32(id))
		}
	}
	return out
}

func (a *metadataAnswer) offline(p *image.Partition) []int32 {
	out := make([]int32, 0)
	for i, id := range p.Replicas {
		lost := i < len(p.Directories) && p.Directories[i] == image.DirectoryLost
		if lost || !a.alive(id) {
			out = append(out, int32(id))
		}
	}
	return out
}

func raw(ids []wire.BrokerID) []int32 {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return out
}
