package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Values of ssl.client.auth.
const (
	ClientAuthNone      = "none"
	ClientAuthRequested = "requested"
	ClientAuthRequired  = "required"
)

// TLS is the settings of the listeners of nodes that are SSL.
type TLS struct {
	// Chain, Key and Trust are PEM. Chain and Key are the same file where a file is named.
	Chain, Key, Trust Store
	ClientAuth        string // one of the values of ssl.client.auth
	TLS12, TLS13      bool   // the versions that are allowed; at least one
	CheckNames        bool   // the name dialled must be in the certificate
}

// Store is where PEM comes from: a text, or a file.
type Store struct {
	Setting string // that names it
	Text    string // "" where File is set
	File    string
}

// NodeTLS reports whether nodes speak TLS to each other: a listener of this node on which they do, or the one of others
// that it dials, is SSL. Check sees to it that then all are.
func (c *Config) NodeTLS() bool {
	listeners, err := c.Listeners()
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.nodeListeners(listeners), func(l Listener) bool { return l.Protocol == SSL })
}

// nodeListeners is the names and protocols of the listeners on which nodes speak to each other, those that only other nodes
// have among them, as far as the settings tell.
func (c *Config) nodeListeners(listeners []Listener) []Listener {
	protocols, err := c.protocolMap()
	if err != nil {
		return nil // Listeners has refused it
	}
	interBroker, named := c.namedInterBroker()
	if c.Broker() {
		interBroker, named = c.InterBrokerListener(), true
	}
	var out []Listener
	add := func(name string) {
		if i := slices.IndexFunc(listeners, func(l Listener) bool { return l.Name == name }); i >= 0 {
			out = append(out, listeners[i])
		} else if p, ok := protocols[name]; ok {
			out = append(out, Listener{Name: name, Protocol: p})
		}
	}
	for _, name := range upper(c.List("controller.listener.names")) {
		if _, ok := protocols[name]; !ok && !c.IsSet("listener.security.protocol.map") {
			protocols[name] = Plaintext // as in protocolOf
		}
		add(name)
	}
	if named {
		add(interBroker)
	}
	return out
}

// checkTLS refuses what would leave a way between nodes without the proof that the others have, or that is not there yet.
func (c *Config) checkTLS(listeners []Listener) error {
	if !c.NodeTLS() {
		return nil
	}
	if err := c.checkNodeListeners(listeners); err != nil {
		return err
	}
	for _, l := range c.nodeListeners(listeners) {
		prefix := "listener.name." + strings.ToLower(l.Name) + "."
		for name := range c.unknown {
			if rest, ok := strings.CutPrefix(strings.ToLower(name), prefix); ok && strings.HasPrefix(rest, "ssl.") {
				return fmt.Errorf("%s: settings of single listeners are not supported yet; all listeners of nodes have the same, %s", name, rest)
			}
		}
	}
	_, err := c.TLS()
	return err
}

// checkNodeListeners wants TLS on every way between nodes, and clients on a listener of their own.
func (c *Config) checkNodeListeners(listeners []Listener) error {
	nodes := c.nodeListeners(listeners)
	_, named := c.namedInterBroker()
	plain := slices.IndexFunc(nodes, func(l Listener) bool { return l.Protocol != SSL })
	secure := slices.IndexFunc(nodes, func(l Listener) bool { return l.Protocol == SSL })
	switch {
	case plain >= 0 && !nodes[plain].Controller && c.Broker() && c.InterBrokerListener() == nodes[plain].Name && !named:
		return fmt.Errorf("inter.broker.listener.name: listener %s is SSL, and brokers would speak to each other on %s, which is %s: give them a listener of their own; "+
			"add INTERNAL://:9094 to listeners, INTERNAL:SSL to listener.security.protocol.map, and inter.broker.listener.name=INTERNAL",
			nodes[secure].Name, nodes[plain].Name, nodes[plain].Protocol)
	case plain >= 0:
		return fmt.Errorf("listener.security.protocol.map: listener %s is SSL and %s is %s, and nodes speak to each other on both; map both to SSL",
			nodes[secure].Name, nodes[plain].Name, nodes[plain].Protocol)
	case !c.Broker() && !named:
		return errors.New("inter.broker.listener.name: it is not set, and this controller has to reach brokers at theirs; " +
			"add it as the brokers have it, and its name to listener.security.protocol.map, for example INTERNAL:SSL")
	case c.Broker() && !slices.ContainsFunc(listeners, func(l Listener) bool { return !l.Controller && l.Protocol == Plaintext }):
		return fmt.Errorf("listeners: %s is for nodes, and clients need a listener of their own, since SSL is not supported yet for them; add PLAINTEXT://:9092",
			c.InterBrokerListener())
	}
	return nil
}

// TLS is the settings for TLS between nodes, which NodeTLS reports; the error says which is missing or not supported.
func (c *Config) TLS() (TLS, error) {
	t := TLS{ClientAuth: c.String("ssl.client.auth")}
	for _, kind := range []string{"ssl.keystore.type", "ssl.truststore.type"} {
		if v := c.String(kind); v != "PEM" {
			return t, fmt.Errorf("%s: %s is not supported yet, only PEM; `openssl pkcs12` makes PEM of PKCS12, and `keytool -importkeystore` PKCS12 of JKS; set %s=PEM", kind, v, kind)
		}
	}
	if c.Secret() == nil && t.ClientAuth != ClientAuthRequired {
		return t, fmt.Errorf("ssl.client.auth: it is %s, and without kaja.cluster.secret certificates are what nodes prove themselves by; set ssl.client.auth=required", t.ClientAuth)
	}
	if err := t.stores(c); err != nil {
		return t, err
	}
	for _, v := range c.List("ssl.enabled.protocols") {
		switch v {
		case "TLSv1.2":
			t.TLS12 = true
		case "TLSv1.3":
			t.TLS13 = true
		default:
			return t, fmt.Errorf("ssl.enabled.protocols: %s is not supported, only TLSv1.2 and TLSv1.3", v)
		}
	}
	if !t.TLS12 && !t.TLS13 {
		return t, errors.New("ssl.enabled.protocols: it is empty; name TLSv1.2, TLSv1.3 or both")
	}
	switch v := c.String("ssl.endpoint.identification.algorithm"); strings.ToLower(v) {
	case "https":
		t.CheckNames = true
	case "":
	default:
		return t, fmt.Errorf("ssl.endpoint.identification.algorithm: %s is not supported, only https, or nothing to check no names", v)
	}
	return t, nil
}

// stores finds out where keys and certificates are.
func (t *TLS) stores(c *Config) error {
	const chain, key, file = "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.location"
	inline := c.String(chain) != "" || c.String(key) != ""
	switch at := c.String(file); {
	case at != "" && inline:
		return fmt.Errorf("%s: only one of it and %s with %s may be set", file, key, chain)
	case at != "":
		t.Chain = Store{Setting: file, File: at}
		t.Key = t.Chain
	case c.String(chain) == "" || c.String(key) == "":
		return fmt.Errorf("%s: a listener is SSL and has no certificate; set it to a PEM file with private key and certificate chain, or set both %s and %s", file, key, chain)
	default:
		t.Chain, t.Key = Store{Setting: chain, Text: c.String(chain)}, Store{Setting: key, Text: c.String(key)}
	}
	const trust, trustFile = "ssl.truststore.certificates", "ssl.truststore.location"
	switch at, text := c.String(trustFile), c.String(trust); {
	case at != "" && text != "":
		return fmt.Errorf("%s: only one of it and %s may be set", trustFile, trust)
	case at == "" && text == "":
		return fmt.Errorf("%s: whose certificates to trust is not said; set it to a PEM file with the CA of the nodes, or set %s", trustFile, trust)
	default:
		t.Trust = Store{Setting: trustFile, File: at, Text: text}
		if text != "" {
			t.Trust.Setting = trust
		}
	}
	return nil
}

// unusedTLS reports the settings of TLS that were given for nothing.
func (c *Config) unusedTLS() []Report {
	if c.NodeTLS() {
		return nil
	}
	var out []Report
	for name, s := range c.set {
		def, ok := server.lookup(name)
		if !ok || !strings.HasPrefix(name, "ssl.") || def.isDefault(s.value) {
			continue
		}
		shown := Format(s.value)
		if def.Sensitive() {
			shown = hidden
		}
		out = append(out, Report{Name: name, Value: shown, Origin: s.origin, Kind: NoTLS})
	}
	return out
}
