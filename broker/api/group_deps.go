package api

import (
	"net"
	"strings"

	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/groupcoord"
	"github.com/kajamq/kaja/raftctl/image"
	"github.com/kajamq/kaja/wire"
)

// groupClient says who sent a group request, in the form that members are described with.
func groupClient(req *server.Request) groupcoord.Client {
	c := groupcoord.Client{ID: req.ClientID}
	if req.Conn.Remote == nil {
		return c
	}
	host := req.Conn.Remote.String()
	if h, _, err := net.SplitHostPort(host); err == nil {
		host, _, _ = strings.Cut(h, "%") // without an IPv6 zone
	}
	c.Host = "/" + host
	return c
}

// resolveTopic finds a topic by its id in versions that send ids, else by its name.
func resolveTopic(img *image.Image, byID bool, name string, id wire.UUID) (*image.Topic, bool) {
	if byID {
		return img.TopicByID(id)
	}
	return img.Topic(name)
}
