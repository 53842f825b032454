package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs changes configs that this node has looked through; results are parallel to requests, nil for success. All
// requests are of one kind: Replace or not.
func (a *Access) AlterConfigs(ctx context.Context, requests []raftctl.AlterConfigs, validateOnly bool) ([]*raftctl.Error, error) {
	if a.Leading() {
		results, err := a.o.Local.AlterConfigs(ctx, requests, validateOnly)
		if a.o.Lanes == nil || err == nil || !retriable(err) {
			return results, err
		}
	}
	var req kmsg.Request
	if len(requests) > 0 && requests[0].Replace {
		req = replaceConfigs(requests, validateOnly)
	} else {
		req = changeConfigs(requests, validateOnly)
	}
	resp, err := a.Forward(ctx, a.own(req))
	if errors.Is(err, ErrHere) {
		return a.o.Local.AlterConfigs(ctx, requests, validateOnly)
	}
	if err != nil {
		return nil, err
	}
	return configResults(resp, requests), nil
}

// own is a request of this node itself.
func (a *Access) own(req kmsg.Request) Forwarded {
	return Forwarded{Msg: req, ClientID: fmt.Sprintf("node-%d", a.o.NodeID), Principal: wire.AppendPrincipal(nil, "User", "ANONYMOUS"), Host: []byte{127, 0, 0, 1}}
}

func replaceConfigs(requests []raftctl.AlterConfigs, validateOnly bool) kmsg.Request {
	const version = 2
	req := kmsg.NewPtrAlterConfigsRequest()
	req.Version, req.ValidateOnly = version, validateOnly
	for _, r := range requests {
		res := kmsg.NewAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(r.Resource.Type), r.Resource.Name
		for _, ch := range r.Changes {
			c := kmsg.NewAlterConfigsRequestResourceConfig()
			c.Name, c.Value = ch.Name, ch.Value
			res.Configs = append(res.Configs, c)
		}
		req.Resources = append(req.Resources, res)
	}
	return req
}

func changeConfigs(requests []raftctl.AlterConfigs, validateOnly bool) kmsg.Request {
	const version = 1
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version, req.ValidateOnly = version, validateOnly
	for _, r := range requests {
		res := kmsg.NewIncrementalAlterConfigsRequestResource()
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceType(r.Resource.Type), r.Resource.Name
		for _, ch := range r.Changes {
			c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
			c.Name, c.Op, c.Value = ch.Name, kmsg.IncrementalAlterConfigOp(ch.Op), ch.Value
			res.Configs = append(res.Configs, c)
		}
		req.Resources = append(req.Resources, res)
	}
	return req
}

func configResults(resp kmsg.Response, requests []raftctl.AlterConfigs) []*raftctl.Error {
	type result struct {
		code int16
		text *string
	}
	at := map[image.Resource]result{}
	switch r := resp.(type) {
	case *kmsg.AlterConfigsResponse:
		for _, res := range r.Resources {
			at[image.Resource{Type: image.ResourceType(res.ResourceType), Name: res.ResourceName}] = result{res.ErrorCode, res.ErrorMessage}
		}
	case *kmsg.IncrementalAlterConfigsResponse:
		for _, res := range r.Resources {
			at[image.Resource{Type: image.ResourceType(res.ResourceType), Name: res.ResourceName}] = result{res.ErrorCode, res.ErrorMessage}
		}
	}
	out := make([]*raftctl.Error, len(requests))
	for i, r := range requests {
		res, ok := at[r.Resource]
		if !ok {
			out[i] = &raftctl.Error{Code: kerr.UnknownServerError}
		} else {
			out[i] = refused(res.code, res.text)
		}
	}
	return out
}
