package api

import (
	"context"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createPartitions answers CreatePartitions (key 37), versions 0-3. Errors by topic: 3, 7, 37, 38, 39, 41, 42, 44.
type createPartitions struct{ creator partitionCreator }

// partitionCreator adds partitions; raftctl.Controller is one.
type partitionCreator interface {
	CreatePartitions(ctx context.Context, topics []raftctl.MorePartitions, validateOnly bool) ([]*raftctl.Error, error)
}

func (h createPartitions) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.CreatePartitionsRequest)
	resp := msg.ResponseKind().(*kmsg.CreatePartitionsResponse)
	count := make(map[string]int, len(msg.Topics))
	for _, t := range msg.Topics {
		count[t.Topic]++
	}
	add := func(name string, code int16, text *string) {
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic, rt.ErrorCode, rt.ErrorMessage = name, code, text
		resp.Topics = append(resp.Topics, rt)
	}
	var topics []raftctl.MorePartitions
	for _, t := range msg.Topics {
		switch n := count[t.Topic]; {
		case n < 0:
		case n > 1:
			count[t.Topic] = -1
			text := "Duplicate topic name."
			add(t.Topic, kerr.InvalidRequest.Code, &text)
		default:
			m := raftctl.MorePartitions{Topic: t.Topic, Count: t.Count}
			if t.Assignment != nil {
				m.Assignments = make([][]wire.BrokerID, 0, len(t.Assignment))
				for _, a := range t.Assignment {
					m.Assignments = append(m.Assignments, brokerIDs(a.Replicas))
				}
			}
			topics = append(topics, m)
		}
	}
	if len(topics) > 0 {
		ctx, cancel := withTimeout(ctx, msg.TimeoutMillis)
		defer cancel()
		results, err := h.creator.CreatePartitions(ctx, topics, msg.ValidateOnly)
		for i, t := range topics {
			if err != nil {
				code, text := refusal(err)
				add(t.Topic, code, text)
				continue
			}
			code, text := resultOf(results[i])
			add(t.Topic, code, text)
		}
	}
	w.Reply(resp)
}
