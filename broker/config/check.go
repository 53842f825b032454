package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/wire"
)

// Check looks at the settings together. hostname is the machine's own name, "" if unknown. The error joins everything
// that is wrong, one line each, with the name of the setting first.
func (c *Config) Check(hostname string) error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(c.checkIdentity())
	listeners, err := c.Listeners()
	add(err)
	if err == nil {
		add(c.checkRoles(listeners))
		add(c.checkInterBroker(listeners))
		add(c.checkQuorum(hostname))
		add(c.checkTLS(listeners))
	}
	add(c.checkNumbers())
	return errors.Join(errs...)
}

func (c *Config) checkIdentity() error {
	if c.IsSet("node.id") && c.IsSet("broker.id") && c.Int64("node.id") != c.Int64("broker.id") {
		return fmt.Errorf("broker.id: %d differs from node.id %d; leave one of them out", c.Int64("broker.id"), c.Int64("node.id"))
	}
	if c.NodeID() < 0 {
		return fmt.Errorf("broker.id: %d is not a node id; want 0 or more", c.NodeID())
	}
	if id := c.String("kaja.cluster.id"); id != "" {
		if _, err := wire.ParseUUID(id); err != nil {
			return fmt.Errorf("kaja.cluster.id: %w", err)
		}
	}
	dirs := c.LogDirs()
	if len(dirs) == 0 || slices.Contains(dirs, "") {
		return errors.New("log.dirs: at least one directory is needed, and none may be empty")
	}
	for i, dir := range dirs {
		if slices.Contains(dirs[:i], dir) {
			return fmt.Errorf("log.dirs: %s is there twice", dir)
		}
	}
	return nil
}

func (c *Config) checkRoles(listeners []Listener) error {
	roles := slices.Sorted(slices.Values(c.List("process.roles")))
	if len(roles) == 0 || len(slices.Compact(roles)) < len(c.List("process.roles")) {
		return fmt.Errorf("process.roles: %q is not broker, controller or both", strings.Join(c.List("process.roles"), ","))
	}
	clients, controllers := 0, 0
	for _, l := range listeners {
		if l.Controller {
			controllers++
		} else {
			clients++
		}
	}
	switch {
	case !c.Broker() && clients > 0:
		return fmt.Errorf("process.roles: a controller alone has no listeners but those of controller.listener.names (%s); listeners has %s",
			strings.Join(upper(c.List("controller.listener.names")), ", "), names(listeners))
	case !c.Controller() && controllers > 0:
		return fmt.Errorf("process.roles: a broker alone has no controller listener; take the listeners of controller.listener.names (%s) out of listeners",
			strings.Join(upper(c.List("controller.listener.names")), ", "))
	case c.Broker() && clients == 0:
		return fmt.Errorf("controller.listener.names: it names all listeners (%s); clients need one more", names(listeners))
	}
	if !c.Controller() {
		return nil // the listeners that it names are those of other nodes
	}
	for _, name := range upper(c.List("controller.listener.names")) {
		if !slices.ContainsFunc(listeners, func(l Listener) bool { return l.Name == name }) {
			return fmt.Errorf("controller.listener.names: %s is not in listeners (%s)", name, names(listeners))
		}
	}
	return nil
}

func (c *Config) checkInterBroker(listeners []Listener) error {
	if c.IsSet("inter.broker.listener.name") && c.IsSet("security.inter.broker.protocol") {
		return errors.New("inter.broker.listener.name: only one of it and security.inter.broker.protocol may be set")
	}
	name := c.InterBrokerListener()
	i := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == name })
	switch {
	case !c.Broker():
	case i >= 0 && listeners[i].Controller:
		return fmt.Errorf("inter.broker.listener.name: %s is a controller listener", name)
	case i < 0 && (c.IsSet("inter.broker.listener.name") || c.IsSet("security.inter.broker.protocol")):
		return fmt.Errorf("inter.broker.listener.name: %s is not in listeners (%s)", name, names(listeners))
	}
	return nil
}

// parseHostPort reads host:port with the host in brackets if it is an IPv6 address.
func parseHostPort(s string) (HostPort, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return HostPort{}, fmt.Errorf("%q is not host:port", s)
	}
	host := strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]")
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil || host == "" && s[0] == '[' || strings.Contains(host, ":") && s[0] != '[' {
		return HostPort{}, fmt.Errorf("%q is not host:port", s)
	}
	return HostPort{Host: host, Port: int(port)}, nil
}

// checkNumbers is Kafka's rules between numbers, of those that are enforced.
func (c *Config) checkNumbers() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := c.Int64("log.retention.ms"); n == 0 || n < -1 {
		bad("%s: retention must be -1 (unlimited) or at least 1 ms", c.nameGiven("log.retention.ms"))
	}
	if c.Int64("log.roll.ms") < 1 {
		bad("%s: must be at least 1", c.nameGiven("log.roll.ms"))
	}
	if c.Int64("log.roll.jitter.ms") < 0 {
		bad("%s: must be at least 0", c.nameGiven("log.roll.jitter.ms"))
	}
	if most, one := c.Int64("queued.max.request.bytes"), c.Int64("socket.request.max.bytes"); most > 0 && most < one {
		bad("queued.max.request.bytes: %d is less than socket.request.max.bytes (%d), so the largest request could never be read", most, one)
	}
	if lo, hi := c.Int64("group.min.session.timeout.ms"), c.Int64("group.max.session.timeout.ms"); lo > hi {
		bad("group.min.session.timeout.ms: %d is more than group.max.session.timeout.ms (%d)", lo, hi)
	}
	if lo, hi := c.Int64("log.cleaner.min.compaction.lag.ms"), c.Int64("log.cleaner.max.compaction.lag.ms"); lo > hi {
		bad("log.cleaner.min.compaction.lag.ms: %d is more than log.cleaner.max.compaction.lag.ms (%d)", lo, hi)
	}
	if n := c.Int64("default.replication.factor"); n < 1 {
		bad("default.replication.factor: must be at least 1")
	}
	if err := c.checkConnections(); err != nil {
		errs = append(errs, err)
	}
	if s := c.String("kaja.http.listener"); s != "" {
		if _, err := parseHostPort(s); err != nil {
			bad("kaja.http.listener: %w", err)
		}
	}
	return errors.Join(errs...)
}

// nameGiven is the name under which a setting was given, for messages.
func (c *Config) nameGiven(name string) string {
	def := mustDef(name)
	for _, n := range append([]Synonym{{Name: name}}, def.Synonyms...) {
		if c.IsSet(n.Name) {
			return n.Name
		}
	}
	return name
}

// checkConnections refuses bounds that would lock everybody out, those who could undo it included.
func (c *Config) checkConnections() error {
	perIP, err := c.ConnectionsPerIP()
	switch {
	case err != nil:
		return err
	case c.Int("max.connections") == 0:
		return errors.New("max.connections: 0 shuts everybody out; set a number or leave it out")
	case c.Int("max.connections.per.ip") == 0 && len(perIP) == 0:
		return errors.New("max.connections.per.ip: 0 shuts everybody out; it needs max.connections.per.ip.overrides")
	}
	return nil
}

// ConnectionsPerIP is max.connections.per.ip.overrides: connections allowed by IP address, in the text form of netip.
func (c *Config) ConnectionsPerIP() (map[string]int, error) {
	out := map[string]int{}
	for _, entry := range splitList(c.String("max.connections.per.ip.overrides")) {
		bad := fmt.Errorf("max.connections.per.ip.overrides: %q is not address:number, with an IP address", entry)
		i := strings.LastIndexByte(entry, ':')
		if i < 0 {
			return nil, bad
		}
		addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(entry[:i], "["), "]"))
		if err != nil {
			return nil, bad
		}
		n, err := strconv.ParseInt(entry[i+1:], 10, 32)
		if err != nil || n < 0 {
			return nil, bad
		}
		out[addr.Unmap().String()] = int(n)
	}
	return out, nil
}
