package broker

import (
	"sync/atomic"

	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/server"
)

// routes finds the API behind a key for each connection.
type routes struct {
	controller map[string]bool        // listeners that serve controllers, by name; never changed
	tables     atomic.Pointer[tables] // nil until something is served
}

// tables are the routes at one time. Immutable.
type tables struct {
	client map[int16]server.Route
	admin  map[int16]server.Route // what controller listeners serve
	nodes  map[int16]server.Route // what nodes that have proven to be of this cluster are served besides, on every listener
	// every is what nodes are told that they are served. They ask once a connection, so it has from the beginning what is
	// served when the replicas are open; a request that comes too early ends its connection.
	every []server.Route
}

// fillRoutes fills in what is served: before the replicas are open what needs the controller alone.
func (b *Broker) fillRoutes(whole bool) {
	t := &tables{client: map[int16]server.Route{}, admin: map[int16]server.Route{}, nodes: map[int16]server.Route{}}
	registerer := b.env.Registerer
	if !whole {
		registerer = nil
	}
	var loggers api.Loggers
	if b.env.LogLevel != nil {
		loggers = levelLogger{b.env.LogLevel}
	}
	table := api.Table(api.Services{
		Config: b.cfg, NodeID: b.nodeID(), ClusterID: b.identity.ClusterID,
		Images: b, Endpoints: b.addresses, Partitions: b.replicas.Load(), Controller: b.controller, Active: b.active, QuorumEndpoints: b.quorumEndpoint, Ask: b.asker("txn"), AskCoordinators: b.asker("coordinators"),
		ProducerIDs: b.producerIDs, NewSessionID: b.ids.sessionID,
		Groups: b.groups, Txns: b.txns, Codecs: b.codecs, Loggers: loggers, Wall: b.env.Wall, Registerer: registerer, Routes: &b.routes,
		ControllerListener: func(name string) bool { return b.routes.controller[name] },
	})
	for _, e := range table {
		t.every = append(t.every, e.Route)
		if e.Node {
			t.nodes[e.Key] = e.Route
			continue
		}
		if whole {
			t.client[e.Key] = e.Route
		}
		if e.Controller {
			t.admin[e.Key] = e.Route
		}
	}
	b.routes.tables.Store(t)
}

func (r *routes) of(t *tables, listener string) map[int16]server.Route {
	if r.controller[listener] {
		return t.admin
	}
	return t.client
}

// Route implements server.Routes.
func (r *routes) Route(c *server.Conn, key int16) (server.Route, bool) {
	t := r.tables.Load()
	if t == nil {
		return server.Route{}, false
	}
	if route, ok := r.of(t, c.Listener)[key]; ok {
		return route, true
	}
	if _, proven := c.Peer(); !proven {
		return server.Route{}, false
	}
	if route, ok := t.nodes[key]; ok {
		return route, true
	}
	route, ok := t.admin[key]
	return route, ok
}

// Routes implements api.RouteLister.
func (r *routes) Routes(c *server.Conn) []server.Route {
	t := r.tables.Load()
	if t == nil {
		return nil
	}
	if _, proven := c.Peer(); proven {
		return t.every
	}
	of := r.of(t, c.Listener)
	out := make([]server.Route, 0, len(of))
	for _, route := range of {
		out = append(out, route)
	}
	return out
}
