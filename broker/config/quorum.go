package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/kajamq/kaja/wire"
)

// MinSecretBytes is the least length of kaja.cluster.secret.
const MinSecretBytes = 16

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID wire.BrokerID
	HostPort
}

// Quorum is what the settings say of the controllers.
type Quorum struct {
	// Voters is controller.quorum.voters, by id; nil without it.
	Voters []Voter
	// Listed is the host:port of every node to ask while a cluster forms, sorted and each once: those of Voters and of
	// controller.quorum.bootstrap.servers.
	Listed []string
	// Alone: no other node is named, and this one may vote. Such a node is a cluster of its own if its directory is empty.
	Alone bool
}

// Broker reports whether the node's roles have it hold partitions and serve clients.
func (c *Config) Broker() bool { return slices.Contains(c.List("process.roles"), "broker") }

// Controller reports whether the node's roles let it vote in the metadata quorum.
func (c *Config) Controller() bool { return slices.Contains(c.List("process.roles"), "controller") }

// Secret is kaja.cluster.secret; nil without one.
func (c *Config) Secret() []byte {
	if s := c.String("kaja.cluster.secret"); s != "" {
		return []byte(s)
	}
	return nil
}

// ProvesNodes reports whether the node can prove to others that it is one of their cluster, by a secret or by certificates.
// Without it it is alone for good.
func (c *Config) ProvesNodes() bool { return c.Secret() != nil || c.NodeTLS() }

// Quorum is the controllers that the settings name. hostname is the machine's own name, "" if unknown; it serves to
// recognise the node's own address.
func (c *Config) Quorum(hostname string) (Quorum, error) {
	listeners, err := c.Listeners()
	if err != nil {
		return Quorum{}, err
	}
	q := Quorum{Alone: c.Controller()}
	for _, v := range c.List("controller.quorum.voters") {
		voter, err := parseVoter(v)
		if err != nil {
			return Quorum{}, err
		}
		if slices.ContainsFunc(q.Voters, func(o Voter) bool { return o.ID == voter.ID }) {
			return Quorum{}, fmt.Errorf("controller.quorum.voters: node %d is there twice", voter.ID)
		}
		q.Voters = append(q.Voters, voter)
		q.Listed = append(q.Listed, voter.String())
		q.Alone = q.Alone && int32(voter.ID) == c.NodeID()
	}
	slices.SortFunc(q.Voters, func(a, b Voter) int { return int(a.ID) - int(b.ID) })
	for _, s := range c.List("controller.quorum.bootstrap.servers") {
		at, err := parseHostPort(s)
		if err != nil {
			return Quorum{}, fmt.Errorf("controller.quorum.bootstrap.servers: %w", err)
		}
		q.Listed = append(q.Listed, at.String())
		q.Alone = q.Alone && isSelf(at, listeners, hostname)
	}
	slices.Sort(q.Listed)
	q.Listed = slices.Compact(q.Listed)
	return q, nil
}

func parseVoter(text string) (Voter, error) {
	id, addr, ok := strings.Cut(text, "@")
	at, err := parseHostPort(addr)
	n, numErr := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || numErr != nil || n < 0 {
		return Voter{}, fmt.Errorf("controller.quorum.voters: %q is not id@host:port", text)
	}
	return Voter{wire.BrokerID(n), at}, nil
}

// checkQuorum compares the controllers with the roles, by Kafka's rules (KafkaConfig.validateValues).
func (c *Config) checkQuorum(hostname string) error {
	q, err := c.Quorum(hostname)
	if err != nil {
		return err
	}
	listed := slices.ContainsFunc(q.Voters, func(v Voter) bool { return int32(v.ID) == c.NodeID() })
	switch {
	case len(q.Listed) == 0 && !c.Controller():
		return fmt.Errorf("process.roles: a broker alone needs controllers; name them in controller.quorum.bootstrap.servers or controller.quorum.voters")
	case listed && !c.Controller():
		return fmt.Errorf("controller.quorum.voters: it names node %d, whose process.roles is just broker", c.NodeID())
	case len(q.Voters) > 0 && !listed && c.Controller():
		return fmt.Errorf("controller.quorum.voters: it does not name node %d, whose process.roles has controller", c.NodeID())
	}
	if s := c.Secret(); s != nil && len(s) < MinSecretBytes {
		return fmt.Errorf("kaja.cluster.secret: it has %d bytes, the least is %d", len(s), MinSecretBytes)
	}
	return nil
}

// isSelf reports whether at is an address of this node where other nodes reach it: a listener's port (a controller
// listener's, or without one any), and its host, its advertised host, the machine's own name or the loopback.
func isSelf(at HostPort, listeners []Listener, hostname string) bool {
	controllers := slices.ContainsFunc(listeners, func(l Listener) bool { return l.Controller })
	return slices.ContainsFunc(listeners, func(l Listener) bool {
		switch {
		case controllers && !l.Controller:
			return false
		case l.Advertised != nil && *l.Advertised == at:
			return true
		case l.Port != at.Port:
			return false
		}
		addr, err := netip.ParseAddr(at.Host)
		return at.Host == l.Host || at.Host == "localhost" || err == nil && (addr.IsLoopback() || addr.IsUnspecified()) ||
			hostname != "" && strings.EqualFold(at.Host, hostname)
	})
}

// PeerListener is the listener where other nodes connect: the first controller listener, without one the inter-broker
// listener.
func (c *Config) PeerListener() (Listener, error) {
	listeners, err := c.Listeners()
	if err != nil {
		return Listener{}, err
	}
	name := c.InterBrokerListener()
	for _, l := range listeners {
		if l.Controller {
			return l, nil
		}
	}
	for _, l := range listeners {
		if l.Name == name {
			return l, nil
		}
	}
	return listeners[0], nil
}
