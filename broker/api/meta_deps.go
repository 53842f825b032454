package api

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/raftctl"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// topicCreator creates topics; raftctl.Controller is one.
type topicCreator interface {
	CreateTopics(ctx context.Context, topics []raftctl.NewTopic, validateOnly bool) ([]raftctl.CreatedTopic, error)
}

// configAlterer changes configs; raftctl.Controller is one.
type configAlterer interface {
	AlterConfigs(ctx context.Context, requests []raftctl.AlterConfigs, validateOnly bool) ([]*raftctl.Error, error)
}

// refusal gives the code and the text of an error of the controller; no text where Kafka sends none.
func refusal(err error) (int16, *string) {
	var e *raftctl.Error
	if !errors.As(err, &e) {
		message := kerr.UnknownServerError.Description
		return kerr.UnknownServerError.Code, &message
	}
	if e.Message == "" {
		return e.Code.Code, nil
	}
	return e.Code.Code, &e.Message
}

// resultOf is refusal for results in which nil is success.
func resultOf(e *raftctl.Error) (int16, *string) {
	if e == nil {
		return 0, nil
	}
	return refusal(e)
}

// withTimeout bounds ctx by a request's own timeout; one that is not positive has passed already.
func withTimeout(ctx context.Context, millis int32) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, time.Duration(max(millis, 0))*time.Millisecond)
}

// alterTimeout bounds changes whose requests carry no timeout of their own.
const alterTimeout = 30 * time.Second

// metadataConfigs is raftctl.Configs over the configuration of this node.
type metadataConfigs struct{ config *config.Config }

// NewConfigs says for a controller what configs mean on a node with this configuration.
func NewConfigs(c *config.Config) raftctl.Configs { return metadataConfigs{c} }

func (m metadataConfigs) ValidateTopic(broker, cluster, topic map[string]string) error {
	return config.ValidateTopic(m.config, config.Dynamic{Broker: broker, Default: cluster}, topic)
}

func (m metadataConfigs) TopicValue(broker, cluster, topic map[string]string, name string) string {
	return config.TopicValue(m.config, config.Dynamic{Broker: broker, Default: cluster}, topic, name)
}

func (metadataConfigs) ListDefault(t image.ResourceType, name string) (string, bool) {
	return config.ListDefault(t == image.ResourceTopic, name)
}

func (m metadataConfigs) ValidateBroker(now, next raftctl.Layers, perBroker, elsewhere bool, changed []string) error {
	return config.ValidateBroker(m.config, config.Dynamic{Broker: now.Broker, Default: now.Cluster},
		config.Dynamic{Broker: next.Broker, Default: next.Cluster}, perBroker, elsewhere, changed)
}

// dynamic is what was altered for node and for all brokers.
func dynamic(img *image.Image, node wire.BrokerID) config.Dynamic {
	return config.Dynamic{
		Broker:  img.Config(image.ResourceBroker, strconv.Itoa(int(node))),
		Default: img.Config(image.ResourceBroker, ""),
	}
}

// OffsetsTopic creates __consumer_offsets as the configuration asks for.
type OffsetsTopic struct {
	images  imageSource
	creator topicCreator
	config  *config.Config
}

// NewOffsetsTopic makes one; the arguments are kept.
func NewOffsetsTopic(images imageSource, creator topicCreator, c *config.Config) *OffsetsTopic {
	return &OffsetsTopic{images: images, creator: creator, config: c}
}

// request is the topic with the settings of the group coordinator (Kafka: GroupCoordinatorService.groupMetadataTopicConfigs).
// Without an explicit replication factor it gets what the usable brokers allow.
func (o *OffsetsTopic) request() raftctl.NewTopic {
	policy, compression := "compact", "producer"
	segment := strconv.Itoa(o.config.Int("offsets.topic.segment.bytes"))
	return raftctl.NewTopic{
		Name:              image.OffsetsTopic,
		Partitions:        int32(o.config.Int("offsets.topic.num.partitions")),
		ReplicationFactor: int16(o.config.Int("offsets.topic.replication.factor")),
		AtMost:            !o.config.IsSet("offsets.topic.replication.factor"),
		Configs: []raftctl.TopicConfig{
			{Name: "cleanup.policy", Value: &policy}, {Name: "compression.type", Value: &compression},
			{Name: "segment.bytes", Value: &segment},
		},
	}
}

// EnsureOffsetsTopic returns once the published image has the topic, whoever created it.
func (o *OffsetsTopic) EnsureOffsetsTopic(ctx context.Context) error {
	return ensureTopic(ctx, o.images, o.creator, o.request())
}

func ensureTopic(ctx context.Context, images imageSource, creator topicCreator, t raftctl.NewTopic) error {
	if _, ok := images.Image().Topic(t.Name); ok {
		return nil
	}
	results, err := creator.CreateTopics(ctx, []raftctl.NewTopic{t}, false)
	if err != nil {
		return err
	}
	if e := results[0].Err; e != nil && !errors.Is(e, kerr.TopicAlreadyExists) {
		return e
	}
	return nil
}
