package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeConfigs answers DescribeConfigs (key 32), versions 1-4. v1 synonyms, v3 types and documentation. Errors by
// resource: 3, 17, 42. Of groups and client-metrics subscriptions nothing is listed yet (docs/limits.md).
type describeConfigs struct {
	images imageSource
	config *config.Config
	node   wire.BrokerID
	// loggers is nil where there are none.
	loggers Loggers
}

func (h describeConfigs) handle(_ context.Context, req *server.Request, w server.Responder) {
	msg := req.Msg.(*kmsg.DescribeConfigsRequest)
	resp := msg.ResponseKind().(*kmsg.DescribeConfigsResponse)
	img := h.images.Image()
	known := !slices.ContainsFunc(msg.Resources, func(r kmsg.DescribeConfigsRequestResource) bool { return !describable(r.ResourceType) })
	for _, r := range msg.Resources {
		rr := kmsg.NewDescribeConfigsResponseResource()
		rr.ResourceType, rr.ResourceName = r.ResourceType, r.ResourceName
		text := ""
		rr.ErrorMessage = &text // never null, as Kafka's
		if known {
			var err *raftctl.Error
			if rr.Configs, err = h.describe(img, r, msg); err != nil {
				rr.ErrorCode, text = err.Code.Code, err.Message
			}
		} else { // one unknown type fails the whole request
			rr.ErrorCode, text = kerr.InvalidRequest.Code, textInvalidRequest
		}
		resp.Resources = append(resp.Resources, rr)
	}
	w.Reply(resp)
}

// describe describes a resource: the configs that are asked for by name, all without a name.
func (h describeConfigs) describe(img *image.Image, r kmsg.DescribeConfigsRequestResource, msg *kmsg.DescribeConfigsRequest) ([]kmsg.DescribeConfigsResponseResourceConfig, *raftctl.Error) {
	res := resourceOf(r.ResourceType, r.ResourceName)
	if res.Type == image.ResourceBrokerLogger {
		return h.describeLoggers(res.Name, r.ConfigNames)
	}
	entries, err := h.entries(img, res, r.ConfigNames)
	var out []kmsg.DescribeConfigsResponseResourceConfig
	for _, e := range entries {
		out = append(out, described(e, msg))
	}
	return out, err
}

// describeLoggers gives the loggers of this process and their levels.
func (h describeConfigs) describeLoggers(name string, asked []string) ([]kmsg.DescribeConfigsResponseResourceConfig, *raftctl.Error) {
	if name == "" {
		return nil, &raftctl.Error{Code: kerr.InvalidRequest, Message: "Broker id must not be empty"}
	}
	if text := h.otherBroker(name, "expected %d but received %s"); text != "" {
		return nil, &raftctl.Error{Code: kerr.InvalidRequest, Message: text}
	}
	var out []kmsg.DescribeConfigsResponseResourceConfig
	if h.loggers == nil {
		return nil, nil
	}
	for _, logger := range h.loggers.Names() {
		if len(asked) > 0 && !slices.Contains(asked, logger) {
			continue
		}
		level, _ := h.loggers.Level(logger)
		rc := kmsg.NewDescribeConfigsResponseResourceConfig()
		rc.Name, rc.Value, rc.Documentation, rc.Source = logger, &level, new(string), kmsg.ConfigSourceDynamicBrokerLoggerConfig
		out = append(out, rc)
	}
	return out, nil
}

// otherBroker is why the configs of a broker are not to be had here; "" if they are.
func (h describeConfigs) otherBroker(name, unexpected string) string {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return "Broker id must be an integer, but it is: " + name
	}
	if wire.BrokerID(id) != h.node {
		return fmt.Sprintf("Unexpected broker id, "+unexpected, h.node, name)
	}
	return ""
}

// entries describes a resource that is kept in the metadata.
func (h describeConfigs) entries(img *image.Image, res image.Resource, asked []string) ([]config.Entry, *raftctl.Error) {
	invalid := func(text string) *raftctl.Error { return &raftctl.Error{Code: kerr.InvalidRequest, Message: text} }
	dyn := dynamic(img, h.node)
	switch res.Type {
	case image.ResourceTopic:
		if reason := raftctl.InvalidTopicName(res.Name); reason != "" {
			return nil, &raftctl.Error{Code: kerr.InvalidTopicException, Message: reason}
		}
		if _, ok := img.Topic(res.Name); !ok {
			return nil, &raftctl.Error{Code: kerr.UnknownTopicOrPartition}
		}
		return config.DescribeTopic(h.config, dyn, img.Config(image.ResourceTopic, res.Name), asked...), nil
	case image.ResourceBroker:
		if res.Name == "" {
			return config.DescribeBrokerDefaults(dyn, asked...), nil
		}
		if text := h.otherBroker(res.Name, "expected %d or empty string, but received %s"); text != "" {
			return nil, invalid(text)
		}
		return config.DescribeBroker(h.config, dyn, asked...), nil
	}
	// Of groups and client-metrics subscriptions nothing that can be set has an effect yet, so nothing is listed.
	if res.Name == "" && res.Type == image.ResourceGroup {
		return nil, invalid("Group name must not be empty")
	}
	if res.Name == "" {
		return nil, invalid("Client metrics subscription name must not be empty")
	}
	return nil, nil
}

// describable reports whether configs of the type exist in Kafka.
func describable(t kmsg.ConfigResourceType) bool {
	switch image.ResourceType(t) {
	case image.ResourceTopic, image.ResourceBroker, image.ResourceBrokerLogger, image.ResourceGroup, image.ResourceClientMetrics:
		return true
	}
	return false
}

func described(e config.Entry, msg *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	rc := kmsg.NewDescribeConfigsResponseResourceConfig()
	rc.Name, rc.Value, rc.ReadOnly, rc.IsSensitive = e.Def.Name, e.Value, e.ReadOnly, e.Def.Sensitive()
	rc.Source, rc.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Def.Type)
	if msg.IncludeSynonyms {
		for _, s := range e.Synonyms {
			rs := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			rs.Name, rs.Value, rs.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			rc.ConfigSynonyms = append(rc.ConfigSynonyms, rs)
		}
	}
	if msg.IncludeDocumentation && e.Def.Documented() {
		doc := e.Def.Doc
		rc.Documentation = &doc
	}
	return rc
}
