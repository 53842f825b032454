package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// alterConfigs answers AlterConfigs (key 33), versions 0-2: the legacy request, which replaces a resource's whole set.
// Errors by resource: 3, 7, 17, 40, 41, 42.
type alterConfigs struct {
	alterer configAlterer
	node    wire.BrokerID
	loggers Loggers // nil: none
}

func (h alterConfigs) handle(ctx context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.AlterConfigsRequest)
	resp := msg.ResponseKind().(*kmsg.AlterConfigsResponse)
	requests := make([]raftctl.AlterConfigs, 0, len(msg.Resources))
	for _, r := range msg.Resources {
		a := raftctl.AlterConfigs{Resource: resourceOf(r.ResourceType, r.ResourceName), Replace: true}
		for _, c := range r.Configs {
			a.Changes = append(a.Changes, raftctl.ConfigChange{Name: c.Name, Op: raftctl.ConfigSet, Value: c.Value})
		}
		requests = append(requests, a)
	}
	for i, res := range h.apply(ctx, requests, msg.ValidateOnly) {
		rr := kmsg.NewAlterConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = msg.Resources[i].ResourceType, msg.Resources[i].ResourceName
		rr.ErrorCode, rr.ErrorMessage = resultOf(res)
		resp.Resources = append(resp.Resources, rr)
	}
	w.Reply(resp)
}

func resourceOf(t kmsg.ConfigResourceType, name string) image.Resource {
	return image.Resource{Type: image.ResourceType(t), Name: name}
}

// apply checks what can be checked without the metadata, and has the controller do the rest. Results are parallel
// to requests; nil is success.
func (h alterConfigs) apply(ctx context.Context, requests []raftctl.AlterConfigs, validateOnly bool) []*raftctl.Error {
	results := make([]*raftctl.Error, len(requests))
	count := make(map[image.Resource]int, len(requests))
	for _, r := range requests {
		count[r.Resource]++
	}
	var rest []raftctl.AlterConfigs
	var at []int
	for i, r := range requests {
		text := "Each resource must appear at most once."
		if count[r.Resource] == 1 {
			text = badAlter(r, h.node)
		}
		if text != "" {
			results[i] = &raftctl.Error{Code: kerr.InvalidRequest, Message: text}
			continue
		}
		if r.Resource.Type == image.ResourceBrokerLogger { // of this process, and nobody else's business
			results[i] = alterLoggers(h.loggers, r.Changes, validateOnly)
			continue
		}
		rest, at = append(rest, r), append(at, i)
	}
	if len(rest) == 0 {
		return results
	}
	ctx, cancel := context.WithTimeout(ctx, alterTimeout)
	defer cancel()
	done, err := h.alterer.AlterConfigs(ctx, rest, validateOnly)
	for n, i := range at {
		if err == nil {
			results[i] = done[n]
			continue
		}
		code, text := refusal(err)
		results[i] = &raftctl.Error{Code: kerr.TypedErrorForCode(code)}
		if text != nil {
			results[i].Message = *text
		}
	}
	return results
}

// badAlter gives the reason, in Kafka's words, why a change is INVALID_REQUEST whatever the metadata is; "" for none.
func badAlter(r raftctl.AlterConfigs, node wire.BrokerID) string {
	names := make(map[string]struct{}, len(r.Changes))
	var nulls []string
	for _, c := range r.Changes {
		if _, dup := names[c.Name]; dup {
			return "Error due to duplicate config keys"
		}
		names[c.Name] = struct{}{}
		if c.Value == nil && c.Op != raftctl.ConfigDelete {
			nulls = append(nulls, c.Name)
		}
	}
	if len(nulls) > 0 {
		return "Null value not supported for : " + strings.Join(nulls, ", ")
	}
	switch r.Resource.Type {
	case image.ResourceTopic, image.ResourceClientMetrics, image.ResourceGroup:
		return ""
	case image.ResourceBroker:
		return notThisBroker(r.Resource.Name, node)
	case image.ResourceBrokerLogger:
		if !r.Replace {
			return notThisNode(r.Resource.Name, node, "Unexpected node id. Expected %d, but received %s")
		}
	}
	return fmt.Sprintf("Unknown resource type %d", r.Resource.Type)
}

// notThisBroker compares a broker's name with node; NoBroker stands for any.
func notThisBroker(name string, node wire.BrokerID) string {
	if name == "" || node == wire.NoBroker {
		return ""
	}
	return notThisNode(name, node, "Unexpected broker id, expected %d, but received %s")
}

// notThisNode is why a resource that only this node has is not meant; "" if it is.
func notThisNode(name string, node wire.BrokerID, unexpected string) string {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return "Node id must be an integer, but it is: " + name
	}
	if wire.BrokerID(id) != node {
		return fmt.Sprintf(unexpected, node, name)
	}
	return ""
}
