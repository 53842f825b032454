package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createTopics answers CreateTopics (key 19), versions 2-7. v5 gives back the configs in force (KIP-525), also for
// validate-only requests; v7 topic ids. Errors by topic: 7, 17, 36, 37, 38, 39, 40, 41, 42, 44.
type createTopics struct {
	images  imageSource
	creator topicCreator
	config  *config.Config
	node    wire.BrokerID
}

const clusterMetadataTopic = "__cluster_metadata"

func (h createTopics) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.CreateTopicsRequest)
	resp := msg.ResponseKind().(*kmsg.CreateTopicsResponse)
	count := make(map[string]int, len(msg.Topics))
	for _, t := range msg.Topics {
		count[t.Topic]++
	}
	var topics []raftctl.NewTopic
	for _, t := range msg.Topics {
		switch {
		case count[t.Topic] > 1:
			count[t.Topic] = -1
			resp.Topics = append(resp.Topics, notCreated(t.Topic, kerr.InvalidRequest.Code, "Duplicate topic name."))
		case count[t.Topic] < 0:
		case t.Topic == clusterMetadataTopic:
			text := fmt.Sprintf("Creation of internal topic %s is prohibited.", t.Topic)
			resp.Topics = append(resp.Topics, notCreated(t.Topic, kerr.InvalidRequest.Code, text))
		default:
			topics = append(topics, newTopic(t))
		}
	}
	if len(topics) > 0 {
		ctx, cancel := withTimeout(ctx, msg.TimeoutMillis)
		defer cancel()
		created, err := h.creator.CreateTopics(ctx, topics, msg.ValidateOnly)
		dyn := dynamic(h.images.Image(), h.node)
		for i := range topics {
			if err != nil {
				code, text := refusal(err)
				rt := notCreated(topics[i].Name, code, "")
				rt.ErrorMessage = text
				resp.Topics = append(resp.Topics, rt)
				continue
			}
			resp.Topics = append(resp.Topics, h.result(created[i], dyn))
		}
	}
	w.Reply(resp)
}

func newTopic(t kmsg.CreateTopicsRequestTopic) raftctl.NewTopic {
	n := raftctl.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	for _, a := range t.ReplicaAssignment {
		n.Assignments = append(n.Assignments, raftctl.Assignment{Partition: wire.PartitionID(a.Partition), Replicas: brokerIDs(a.Replicas)})
	}
	for _, c := range t.Configs {
		n.Configs = append(n.Configs, raftctl.TopicConfig{Name: c.Name, Value: c.Value})
	}
	return n
}

func brokerIDs(ids []int32) []wire.BrokerID {
	out := make([]wire.BrokerID, len(ids))
	for i, id := range ids {
		out[i] = wire.BrokerID(id)
	}
	return out
}

func notCreated(name string, code int16, text string) kmsg.CreateTopicsResponseTopic {
	rt := kmsg.NewCreateTopicsResponseTopic()
	rt.Topic, rt.ErrorCode, rt.ErrorMessage = name, code, &text
	rt.NumPartitions, rt.ReplicationFactor = -1, -1
	rt.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return rt
}

func (h createTopics) result(c raftctl.CreatedTopic, dyn config.Dynamic) kmsg.CreateTopicsResponseTopic {
	if c.Err != nil {
		rt := notCreated(c.Name, 0, "")
		rt.ErrorCode, rt.ErrorMessage = resultOf(c.Err)
		return rt
	}
	rt := kmsg.NewCreateTopicsResponseTopic()
	rt.Topic, rt.TopicID, rt.NumPartitions, rt.ReplicationFactor = c.Name, c.ID, c.Partitions, c.ReplicationFactor
	entries := config.DescribeTopic(h.config, dyn, c.Configs)
	slices.SortFunc(entries, func(a, b config.Entry) int { return strings.Compare(a.Def.Name, b.Def.Name) }) // this API's order
	for _, e := range entries {
		rc := kmsg.NewCreateTopicsResponseTopicConfig()
		rc.Name, rc.Value, rc.ReadOnly, rc.Source, rc.IsSensitive = e.Def.Name, e.Value, e.ReadOnly, int8(e.Source), e.Def.Sensitive()
		rt.Configs = append(rt.Configs, rc)
	}
	return rt
}
