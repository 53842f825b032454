package config

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The security protocols that a listener can be mapped to.
const (
	Plaintext     = "PLAINTEXT"
	SSL           = "SSL"
	SASLPlaintext = "SASL_PLAINTEXT"
	SASLSSL       = "SASL_SSL"
)

// Listener is one configured listener.
type Listener struct {
	// Name is upper case, as Kafka normalises it.
	Name string
	// Host to bind: a name, an IP address without brackets, or "" for every address.
	Host string
	// Port to bind, 0 to 65535; 0 lets the system choose.
	Port int
	// Protocol is the security protocol: Plaintext, or SSL on a listener of nodes.
	Protocol string
	// Controller: the listener is named in controller.listener.names.
	Controller bool
	// Advertised is the configured advertised address, nil if there is none for this listener.
	Advertised *HostPort
}

// HostPort is an address as configured. IPv6 hosts carry no brackets.
type HostPort struct {
	Host string
	Port int
}

// String puts IPv6 hosts into brackets.
func (h HostPort) String() string {
	if strings.Contains(h.Host, ":") {
		return "[" + h.Host + "]:" + strconv.Itoa(h.Port)
	}
	return h.Host + ":" + strconv.Itoa(h.Port)
}

// String is the form that the listeners setting has.
func (l Listener) String() string { return l.Name + "://" + HostPort{l.Host, l.Port}.String() }

// listenerPattern is what Kafka accepts as a listener: NAME://host:port, the host in brackets or bare, or empty.
var listenerPattern = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)

// parseListener reads one entry of listeners or advertised.listeners.
func parseListener(text string) (Listener, error) {
	m := listenerPattern.FindStringSubmatch(text)
	if m == nil {
		return Listener{}, fmt.Errorf("%q is not a listener: want NAME://host:port", text)
	}
	port, err := strconv.Atoi(m[3])
	if err != nil || port < 0 || port > 65535 {
		return Listener{}, fmt.Errorf("the port of %q is not between 0 and 65535", text)
	}
	if m[1] == "" {
		return Listener{}, fmt.Errorf("%q has no listener name: want NAME://host:port", text)
	}
	l := Listener{Name: strings.ToUpper(m[1]), Host: m[2], Port: port}
	if strings.Contains(l.Host, ":") {
		if _, err := netip.ParseAddr(l.Host); err != nil {
			return Listener{}, fmt.Errorf("the host of %q is not an IPv6 address", text)
		}
	}
	return l, nil
}

// parseListeners reads a whole list.
func parseListeners(name string, list []string) ([]Listener, error) {
	out := make([]Listener, 0, len(list))
	for _, text := range list {
		l, err := parseListener(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if slices.ContainsFunc(out, func(o Listener) bool { return o.Name == l.Name }) {
			return nil, fmt.Errorf("%s: each listener must have a different name, %s is there twice: %s", name, l.Name, strings.Join(list, ","))
		}
		out = append(out, l)
	}
	return out, nil
}

// distinctPorts follows Kafka: a port may serve two listeners only if one has an IPv4 and the other an IPv6 address.
func distinctPorts(listeners []Listener) error {
	for i, a := range listeners {
		for j, b := range listeners[:i] {
			if a.Port == 0 || a.Port != b.Port {
				continue
			}
			if opposite(a.Host, b.Host) && !slices.ContainsFunc(listeners, func(l Listener) bool {
				return l.Port == a.Port && l.Name != a.Name && l.Name != b.Name
			}) {
				continue
			}
			return fmt.Errorf("listeners: each listener must have a different port, unless one has an IPv4 and the other an IPv6 address: %s, %s", listeners[j], a)
		}
	}
	return nil
}

func opposite(a, b string) bool {
	x, err1 := netip.ParseAddr(a)
	y, err2 := netip.ParseAddr(b)
	return err1 == nil && err2 == nil && x.Is4() != y.Is4()
}

// Listeners is the configured listeners in order, checked by Kafka's rules.
func (c *Config) Listeners() ([]Listener, error) {
	listeners, advertised, err := c.rawListeners()
	if err != nil {
		return nil, err
	}
	if len(listeners) == 0 {
		return nil, fmt.Errorf("listeners: at least one listener is needed")
	}
	if err := distinctPorts(listeners); err != nil {
		return nil, err
	}
	protocols, err := c.protocolMap()
	if err != nil {
		return nil, err
	}
	controllers := upper(c.List("controller.listener.names"))
	interBroker, named := c.namedInterBroker()
	for i := range listeners {
		l := &listeners[i]
		l.Controller = slices.Contains(controllers, l.Name)
		if l.Protocol, err = c.protocolOf(l.Name, l.Controller, protocols); err != nil {
			return nil, err
		}
		if err := supported(*l, l.Controller || named && l.Name == interBroker); err != nil {
			return nil, err
		}
		// A host left out (PLAINTEXT://:9092) is the node's to find out, as if nothing were advertised; Kafka takes the machine's
		// own name.
		if k := slices.IndexFunc(advertised, func(a Listener) bool { return a.Name == l.Name }); k >= 0 && (advertised[k].Host != "" || advertised[k].Port != l.Port) {
			l.Advertised = &HostPort{advertised[k].Host, advertised[k].Port}
		}
	}
	return listeners, checkAdvertised(listeners, advertised)
}

// rawListeners parses listeners and advertised.listeners. With only the latter given, each of its names is listened to
// on every address at its port, as the apache/kafka image does.
func (c *Config) rawListeners() (listeners, advertised []Listener, err error) {
	if advertised, err = parseListeners("advertised.listeners", c.List("advertised.listeners")); err != nil {
		return nil, nil, err
	}
	if len(advertised) > 0 && !c.IsSet("listeners") {
		for _, a := range advertised {
			listeners = append(listeners, Listener{Name: a.Name, Port: a.Port})
		}
		return listeners, advertised, nil
	}
	listeners, err = parseListeners("listeners", c.List("listeners"))
	return listeners, advertised, err
}

// checkAdvertised refuses addresses that no client can use.
func checkAdvertised(listeners, advertised []Listener) error {
	for _, a := range advertised {
		i := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == a.Name })
		if i < 0 {
			return fmt.Errorf("advertised.listeners: %s is not a listener of this node; listeners has %s", a.Name, names(listeners))
		}
		switch {
		case a.Host == "" && a.Port == listeners[i].Port:
		case a.Host == "":
			return fmt.Errorf("advertised.listeners: %s has no host, which only goes with the port that the listener is bound to", a)
		case isWildcard(a.Host):
			return fmt.Errorf("advertised.listeners: %s is not an address that clients can connect to; name a host, or leave the setting out", a)
		case a.Port == 0:
			return fmt.Errorf("advertised.listeners: %s has port 0", a)
		}
	}
	return nil
}

func isWildcard(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}

// Wildcard reports whether l binds every address of the machine.
func (l Listener) Wildcard() bool { return isWildcard(l.Host) }

func names(listeners []Listener) string {
	out := make([]string, len(listeners))
	for i, l := range listeners {
		out[i] = l.Name
	}
	return strings.Join(out, ", ")
}

func upper(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strings.ToUpper(s)
	}
	return out
}

// protocolMap parses listener.security.protocol.map.
func (c *Config) protocolMap() (map[string]string, error) {
	out := map[string]string{}
	for _, entry := range splitList(c.String("listener.security.protocol.map")) {
		name, protocol, ok := strings.Cut(entry, ":")
		name, protocol = strings.ToUpper(trimJava(name)), strings.ToUpper(trimJava(protocol))
		if !ok || name == "" {
			return nil, fmt.Errorf("listener.security.protocol.map: %q is not NAME:PROTOCOL", entry)
		}
		if !slices.Contains([]string{Plaintext, SSL, SASLPlaintext, SASLSSL}, protocol) {
			return nil, fmt.Errorf("listener.security.protocol.map: %q is not a security protocol; want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL", protocol)
		}
		out[name] = protocol
	}
	return out, nil
}

// protocolOf is the protocol of a listener. As in Kafka a controller listener needs no entry in the map as long as the
// map was left alone.
func (c *Config) protocolOf(name string, controller bool, protocols map[string]string) (string, error) {
	protocol, ok := protocols[name]
	switch {
	case !ok && controller && !c.IsSet("listener.security.protocol.map"):
		protocol = Plaintext
	case !ok:
		return "", fmt.Errorf("listener.security.protocol.map: no security protocol for listener %s; add %s:PLAINTEXT", name, name)
	}
	return protocol, nil
}

// supported refuses what is not there yet; nodes says that the listener is for nodes.
func supported(l Listener, nodes bool) error {
	switch {
	case l.Protocol == Plaintext || l.Protocol == SSL && nodes:
		return nil
	case l.Protocol == SSL:
		return fmt.Errorf("listener %s: security protocol SSL is not supported yet for clients, only PLAINTEXT; if it is for nodes add inter.broker.listener.name=%s", l.Name, l.Name)
	}
	return fmt.Errorf("listener %s: security protocol %s is not supported yet, only PLAINTEXT, and SSL between nodes", l.Name, l.Protocol)
}

// namedInterBroker is the listener that brokers use among each other, if a setting says so.
func (c *Config) namedInterBroker() (name string, ok bool) {
	if name := c.String("inter.broker.listener.name"); name != "" {
		return strings.ToUpper(name), true
	}
	return c.String("security.inter.broker.protocol"), c.IsSet("security.inter.broker.protocol")
}

// InterBrokerListener is the name of the listener that brokers use among each other: the one that is set, else the one
// named PLAINTEXT, else the first that is not a controller's.
func (c *Config) InterBrokerListener() string {
	name, named := c.namedInterBroker()
	if named {
		return name
	}
	listeners, err := c.Listeners()
	if err != nil {
		return name
	}
	for _, l := range listeners {
		if l.Name == name && !l.Controller {
			return name
		}
	}
	for _, l := range listeners {
		if !l.Controller {
			return l.Name
		}
	}
	return name
}
