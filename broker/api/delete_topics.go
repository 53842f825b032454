package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteTopics answers DeleteTopics (key 20), versions 1-6. v5 messages; v6 topics by id (KIP-516). Errors by topic: 3, 7,
// 41, 42, 73 (42 below v3), 100.
type deleteTopics struct {
	deleter topicDeleter
	enabled bool // delete.topic.enable
}

// topicDeleter deletes topics; raftctl.Controller is one.
type topicDeleter interface {
	DeleteTopics(ctx context.Context, topics []raftctl.DeletedTopic) ([]raftctl.DeletedTopic, error)
}

func (h deleteTopics) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DeleteTopicsRequest)
	resp := msg.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := msg.Topics
	for i := range msg.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &msg.TopicNames[i]
		asked = append(asked, t)
	}
	if !h.enabled {
		for _, t := range asked {
			err, text := kerr.TopicDeletionDisabled, "Topic deletion is disabled."
			if req.Version < 3 {
				err = kerr.InvalidRequest
			}
			resp.Topics = append(resp.Topics, deleted(t.Topic, t.TopicID, err.Code, &text))
		}
		w.Reply(resp)
		return
	}
	topics := h.distinct(asked, resp)
	if len(topics) > 0 {
		ctx, cancel := withTimeout(ctx, msg.TimeoutMillis)
		defer cancel()
		results, err := h.deleter.DeleteTopics(ctx, topics)
		if err != nil {
			results = topics
		}
		for _, r := range results {
			code, text := resultOf(r.Err)
			if err != nil {
				code, text = refusal(err)
			}
			var name *string
			if r.Name != "" {
				name = &r.Name
			}
			resp.Topics = append(resp.Topics, deleted(name, r.ID, code, text))
		}
	}
	w.Reply(resp)
}

// distinct answers what is named badly or twice, and gives the rest.
func (h deleteTopics) distinct(asked []kmsg.DeleteTopicsRequestTopic, resp *kmsg.DeleteTopicsResponse) []raftctl.DeletedTopic {
	count := make(map[raftctl.DeletedTopic]int, len(asked))
	key := func(t kmsg.DeleteTopicsRequestTopic) raftctl.DeletedTopic {
		k := raftctl.DeletedTopic{ID: t.TopicID}
		if t.Topic != nil {
			k.Name = *t.Topic
		}
		return k
	}
	for _, t := range asked {
		count[key(t)]++
	}
	var topics []raftctl.DeletedTopic
	for _, t := range asked {
		k, text := key(t), ""
		switch noID := k.ID.IsZero(); {
		case t.Topic == nil && noID:
			text = "Neither topic name nor id were specified."
		case t.Topic != nil && !noID:
			text = "You may not specify both topic name and topic id."
		case count[k] < 0:
			continue
		case count[k] > 1 && t.Topic != nil:
			text, count[k] = "Duplicate topic name.", -1
		case count[k] > 1:
			text, count[k] = "Duplicate topic id.", -1
		default:
			topics = append(topics, k)
			continue
		}
		resp.Topics = append(resp.Topics, deleted(t.Topic, k.ID, kerr.InvalidRequest.Code, &text))
	}
	return topics
}

func deleted(name *string, id wire.UUID, code int16, text *string) kmsg.DeleteTopicsResponseTopic {
	rt := kmsg.NewDeleteTopicsResponseTopic()
	rt.Topic, rt.TopicID, rt.ErrorCode, rt.ErrorMessage = name, id, code, text
	return rt
}
