package api

import (
	"context"
	"slices"
	"strconv"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// listConfigResources answers ListConfigResources (key 74), versions 0-1: the resources that have configs or could have.
//
//   - v0 (KIP-1000) lists client-metrics subscriptions, v1 (KIP-1142) any types, all of them when none is named. Brokers and
//     their loggers are those that are not fenced.
//   - Groups and client-metrics subscriptions cannot be configured yet, so none is listed (docs/limits.md).
//
// Error: 35 for a type that the version does not know; then nothing is listed.
type listConfigResources struct {
	images imageSource
}

func (h listConfigResources) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.ListConfigResourcesRequest)
	resp := msg.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	known := []image.ResourceType{image.ResourceClientMetrics}
	if req.Version >= 1 {
		known = []image.ResourceType{image.ResourceGroup, image.ResourceClientMetrics, image.ResourceBrokerLogger, image.ResourceBroker, image.ResourceTopic}
	}
	for _, t := range msg.ResourceTypes {
		if !slices.Contains(known, image.ResourceType(t)) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			w.Reply(resp)
			return
		}
	}
	img := h.images.Image()
	for _, t := range known {
		if len(msg.ResourceTypes) > 0 && !slices.Contains(msg.ResourceTypes, int8(t)) {
			continue
		}
		for _, name := range configResources(img, t) {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(t)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	w.Reply(resp)
}

// configResources names what there is of a type.
func configResources(img *image.Image, t image.ResourceType) []string {
	var names []string
	switch t {
	case image.ResourceBroker, image.ResourceBrokerLogger:
		for b := range img.Brokers() {
			if !b.Fenced {
				names = append(names, strconv.Itoa(int(b.ID)))
			}
		}
	case image.ResourceTopic:
		for topic := range img.Topics() {
			names = append(names, topic.Name)
		}
	}
	return names
}
