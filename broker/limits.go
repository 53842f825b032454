package broker

import (
	"log/slog"
	"math"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
)

// serverLimits are the configured bounds of what clients can take. Kafka's "no limit" (2^31-1, or -1 for the request
// budget) becomes the server's own default.
func serverLimits(c *config.Config) (server.Limits, error) {
	perIP, err := c.ConnectionsPerIP()
	if err != nil {
		return server.Limits{}, err
	}
	l := server.Limits{
		MaxFrameBytes:       c.Int("socket.request.max.bytes"),
		RequestBytes:        max(c.Int64("queued.max.request.bytes"), 0),
		Idle:                c.Duration("connections.max.idle.ms"),
		MaxConnections:      unlimited(c.Int("max.connections")),
		MaxConnectionsPerIP: unlimited(c.Int("max.connections.per.ip")),
		PerIP:               perIP,
		SendBufferBytes:     c.Int("socket.send.buffer.bytes"),
		ReceiveBufferBytes:  -1,
		Backlog:             c.Int("socket.listen.backlog.size"),
	}
	if c.IsSet("socket.receive.buffer.bytes") {
		l.ReceiveBufferBytes = c.Int("socket.receive.buffer.bytes")
	}
	return l, nil
}

// unlimited gives the server's 0 for Kafka's "no limit", and -1 for Kafka's "nobody".
func unlimited(n int) int {
	switch n {
	case math.MaxInt32:
		return 0
	case 0:
		return -1
	}
	return n
}

// applySettings brings the altered settings of an image to the parts that do not look them up by themselves. The caller
// holds applying.
func (b *Broker) applySettings(img *image.Image) {
	c := config.Overlay(b.cfg, b.topics.dynamic(img))
	perIP, err := c.ConnectionsPerIP()
	if err != nil { // checked before it was accepted: another version wrote it
		b.logger.Warn("setting has no effect", slog.String("name", "max.connections.per.ip.overrides"), slog.Any("err", err))
	}
	b.server.LimitConnections(unlimited(c.Int("max.connections")), unlimited(c.Int("max.connections.per.ip")), perIP)
}
