package control

import (
	"context"
	"errors"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Forwarded is a client's request on its way to the active controller.
type Forwarded struct {
	Msg       kmsg.Request // its version is the client's
	ClientID  string
	Principal []byte // as wire.AppendPrincipal writes it
	Host      []byte // the client's IP address: 4 or 16 bytes
}

// Forward has the active controller, which is not in this process, answer a request, and waits until this node's image
// holds what came of it. Where the leadership came to this node meanwhile it gives ErrHere.
func (a *Access) Forward(ctx context.Context, f Forwarded) (kmsg.Response, error) {
	var out kmsg.Response
	var reached wire.Offset
	err := a.call(ctx, tellLate, func(context.Context) error { return ErrHere }, func(ctx context.Context, to wire.BrokerID) (err error) {
		out, reached, err = a.envelope(ctx, to, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	// What was answered has happened, also if this node cannot follow in time.
	_ = a.o.Await(ctx, reached)
	return out, nil
}

// ErrHere says that this node is, or is about to be, the active controller.
var ErrHere = errors.New("the active controller is on this node")

func (a *Access) envelope(ctx context.Context, to wire.BrokerID, f Forwarded) (kmsg.Response, wire.Offset, error) {
	const sizeBytes = 4
	e := kmsg.NewPtrEnvelopeRequest()
	e.RequestData = kmsg.NewRequestFormatter(kmsg.FormatterClientID(f.ClientID)).AppendRequest(nil, f.Msg, 0)[sizeBytes:]
	e.RequestPrincipal, e.ClientHostAddress = f.Principal, f.Host
	resp, err := a.o.Lanes.Asked.Do(ctx, to, e)
	if err != nil {
		return nil, 0, err
	}
	r := resp.(*kmsg.EnvelopeResponse)
	if err := coded(r.ErrorCode, nil); err != nil {
		return nil, 0, err
	}
	body, err := wire.CutResponseHeader(r.ResponseData, f.Msg.Key(), f.Msg.GetVersion())
	if err != nil {
		return nil, 0, &raftctl.Error{Code: kerr.UnknownServerError, Message: "The controller's answer cannot be read."}
	}
	out := f.Msg.ResponseKind()
	out.SetVersion(f.Msg.GetVersion())
	if err := out.ReadFrom(body); err != nil {
		return nil, 0, &raftctl.Error{Code: kerr.UnknownServerError, Message: "The controller's answer cannot be read."}
	}
	reached, _ := wire.OffsetTag(&r.UnknownTags)
	return out, reached, nil
}

// createMillis bounds the creation of topics that nobody has given a bound.
const createMillis = 30000

// CreateTopics creates topics; the results are in their order.
func (a *Access) CreateTopics(ctx context.Context, topics []raftctl.NewTopic, validateOnly bool) ([]raftctl.CreatedTopic, error) {
	if a.Leading() {
		results, err := a.o.Local.CreateTopics(ctx, topics, validateOnly)
		if a.o.Lanes == nil || err == nil || !retriable(err) {
			return results, err
		}
	}
	req := a.createTopics(topics, validateOnly)
	resp, err := a.Forward(ctx, a.own(req))
	if errors.Is(err, ErrHere) {
		return a.o.Local.CreateTopics(ctx, topics, validateOnly)
	}
	if err != nil {
		return nil, err
	}
	results := make([]raftctl.CreatedTopic, len(topics))
	for i, t := range topics {
		results[i] = raftctl.CreatedTopic{Name: t.Name, Err: &raftctl.Error{Code: kerr.UnknownServerError}}
		for _, r := range resp.(*kmsg.CreateTopicsResponse).Topics {
			if r.Topic != t.Name {
				continue
			}
			results[i] = raftctl.CreatedTopic{Name: r.Topic, ID: r.TopicID, Partitions: r.NumPartitions, ReplicationFactor: r.ReplicationFactor}
			results[i].Err = refused(r.ErrorCode, r.ErrorMessage)
		}
	}
	return results, nil
}

func (a *Access) createTopics(topics []raftctl.NewTopic, validateOnly bool) *kmsg.CreateTopicsRequest {
	const version = 7
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.ValidateOnly = version, createMillis, validateOnly
	for _, t := range topics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.Name, t.Partitions, t.ReplicationFactor
		if usable := a.o.Usable(); t.AtMost && usable > 0 {
			rt.ReplicationFactor = min(rt.ReplicationFactor, int16(usable))
		}
		for _, as := range t.Assignments {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			ra.Partition = int32(as.Partition)
			for _, r := range as.Replicas {
				ra.Replicas = append(ra.Replicas, int32(r))
			}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
		}
		for _, c := range t.Configs {
			rc := kmsg.NewCreateTopicsRequestTopicConfig()
			rc.Name, rc.Value = c.Name, c.Value
			rt.Configs = append(rt.Configs, rc)
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}
