package sim

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kajamq/kaja/sim/history"
)

// ReadTopic reads a topic from its start to its present end, by partition, with a client on the host called name.
func ReadTopic(ctx context.Context, c *Cluster, name, topic string) (map[int32][]history.Read, error) {
	return history.ReadTopic(ctx, func(opts ...kgo.Opt) (*kgo.Client, error) { return c.Client(name, opts...) }, topic)
}
