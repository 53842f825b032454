package config

import (
	"strings"
	"testing"
)

// secured is a combined node whose nodes prove themselves by certificates; lines may take its place, later ones win.
func secured(lines ...string) string {
	return strings.Join(append([]string{
		"listeners=PLAINTEXT://:9092,INTERNAL://:9094,CONTROLLER://:9093", "controller.listener.names=CONTROLLER", "inter.broker.listener.name=INTERNAL",
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL", "ssl.client.auth=required",
		"ssl.keystore.type=PEM", "ssl.keystore.location=/tls/node.pem", "ssl.truststore.type=PEM", "ssl.truststore.location=/tls/ca.pem",
	}, lines...), "\n")
}

func TestTLSBetweenNodes(t *testing.T) {
	file := Store{Setting: "ssl.keystore.location", File: "/tls/node.pem"}
	base := TLS{Chain: file, Key: file, Trust: Store{Setting: "ssl.truststore.location", File: "/tls/ca.pem"}, ClientAuth: ClientAuthRequired,
		TLS12: true, TLS13: true, CheckNames: true}
	with := func(edit func(*TLS)) TLS {
		s := base
		edit(&s)
		return s
	}
	for _, tt := range []struct {
		name, file string
		want       TLS
	}{
		{"files", secured(), base},
		{"texts", secured("ssl.keystore.location=", "ssl.truststore.location=", "ssl.keystore.certificate.chain=a", "ssl.keystore.key=b", "ssl.truststore.certificates=c"),
			with(func(s *TLS) {
				s.Chain, s.Key = Store{Setting: "ssl.keystore.certificate.chain", Text: "a"}, Store{Setting: "ssl.keystore.key", Text: "b"}
				s.Trust = Store{Setting: "ssl.truststore.certificates", Text: "c"}
			})},
		{"one version, no names", secured("ssl.enabled.protocols=TLSv1.3", "ssl.endpoint.identification.algorithm="),
			with(func(s *TLS) { s.TLS12, s.CheckNames = false, false })},
		{"a secret besides", secured("kaja.cluster.secret=0123456789abcdef", "ssl.client.auth=none"), with(func(s *TLS) { s.ClientAuth = ClientAuthNone })},
		{"by the protocol", secured("inter.broker.listener.name=", "security.inter.broker.protocol=SSL", "listeners=PLAINTEXT://:1,SSL://:2,C://:3",
			"controller.listener.names=C", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,C:SSL"), base},
		{"no controller listener", secured("listeners=PLAINTEXT://:1,INTERNAL://:2", "controller.listener.names="), base},
		{"a broker alone", secured("process.roles=broker", "listeners=PLAINTEXT://:1,INTERNAL://:2", "controller.quorum.bootstrap.servers=a:1"), base},
		{"a controller alone", secured("process.roles=controller", "listeners=CONTROLLER://:2"), base},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, reports := load(t, Sources{File: []byte(tt.file)})
			got, err := c.TLS()
			if err != nil || got != tt.want || !c.NodeTLS() || !c.ProvesNodes() {
				t.Errorf("%+v, %v\nwant %+v", got, err, tt.want)
			}
			if len(reports) > 0 {
				t.Errorf("reported: %+v", reports)
			}
		})
	}
}

func TestTLSRefused(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"a listener for clients", secured("listeners=PLAINTEXT://:1,INTERNAL://:2,CONTROLLER://:3,EXT://:4", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:SSL,EXT:SSL"),
			"listener EXT: security protocol SSL is not supported yet for clients, only PLAINTEXT; if it is for nodes add inter.broker.listener.name=EXT"},
		{"clients at the nodes' listener", secured("listeners=INTERNAL://:2,CONTROLLER://:3"),
			"listeners: INTERNAL is for nodes, and clients need a listener of their own, since SSL is not supported yet for them; add PLAINTEXT://:9092"},
		{"brokers meet at the clients' listener", secured("inter.broker.listener.name=", "listeners=PLAINTEXT://:1,CONTROLLER://:3"),
			"inter.broker.listener.name: listener CONTROLLER is SSL, and brokers would speak to each other on PLAINTEXT, which is PLAINTEXT: give them a listener of their own; add INTERNAL://:9094 to listeners, INTERNAL:SSL to listener.security.protocol.map, and inter.broker.listener.name=INTERNAL"},
		{"brokers meet in plain text", secured("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:SSL"),
			"listener.security.protocol.map: listener CONTROLLER is SSL and INTERNAL is PLAINTEXT, and nodes speak to each other on both; map both to SSL"},
		{"controllers meet in plain text", secured("listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:PLAINTEXT"),
			"listener.security.protocol.map: listener INTERNAL is SSL and CONTROLLER is PLAINTEXT, and nodes speak to each other on both; map both to SSL"},
		{"a broker dials controllers in plain text", secured("process.roles=broker", "listeners=PLAINTEXT://:1,INTERNAL://:2", "controller.quorum.bootstrap.servers=a:1", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INTERNAL:SSL,CONTROLLER:PLAINTEXT"),
			"listener.security.protocol.map: listener INTERNAL is SSL and CONTROLLER is PLAINTEXT, and nodes speak to each other on both; map both to SSL"},
		{"a broker with controllers that are not mapped", strings.Join([]string{"process.roles=broker", "listeners=PLAINTEXT://:1,SSL://:2", "security.inter.broker.protocol=SSL",
			"controller.listener.names=C", "controller.quorum.bootstrap.servers=a:1"}, "\n"),
			"listener.security.protocol.map: listener SSL is SSL and C is PLAINTEXT, and nodes speak to each other on both; map both to SSL"},
		{"a controller that knows no brokers", secured("process.roles=controller", "listeners=CONTROLLER://:2", "inter.broker.listener.name="),
			"inter.broker.listener.name: it is not set, and this controller has to reach brokers at theirs; add it as the brokers have it, and its name to listener.security.protocol.map, for example INTERNAL:SSL"},
		{"JKS", secured("ssl.keystore.type=JKS"), "ssl.keystore.type: JKS is not supported yet, only PEM; `openssl pkcs12` makes PEM of PKCS12, and `keytool -importkeystore` PKCS12 of JKS; set ssl.keystore.type=PEM"},
		{"PKCS12", secured("ssl.truststore.type=PKCS12"), "ssl.truststore.type: PKCS12 is not supported yet, only PEM; `openssl pkcs12` makes PEM of PKCS12, and `keytool -importkeystore` PKCS12 of JKS; set ssl.truststore.type=PEM"},
		{"no proof", secured("ssl.client.auth=none"), "ssl.client.auth: it is none, and without kaja.cluster.secret certificates are what nodes prove themselves by; set ssl.client.auth=required"},
		{"half a proof", secured("ssl.client.auth=requested"), "ssl.client.auth: it is requested, and without kaja.cluster.secret certificates are what nodes prove themselves by; set ssl.client.auth=required"},
		{"no certificate", secured("ssl.keystore.location="), "ssl.keystore.location: a listener is SSL and has no certificate; set it to a PEM file with private key and certificate chain, or set both ssl.keystore.key and ssl.keystore.certificate.chain"},
		{"no key", secured("ssl.keystore.location=", "ssl.keystore.certificate.chain=a"), "ssl.keystore.location: a listener is SSL and has no certificate; set it to a PEM file with private key and certificate chain, or set both ssl.keystore.key and ssl.keystore.certificate.chain"},
		{"two keys", secured("ssl.keystore.key=secret stuff"), "ssl.keystore.location: only one of it and ssl.keystore.key with ssl.keystore.certificate.chain may be set"},
		{"no trust", secured("ssl.truststore.location="), "ssl.truststore.location: whose certificates to trust is not said; set it to a PEM file with the CA of the nodes, or set ssl.truststore.certificates"},
		{"two trusts", secured("ssl.truststore.certificates=c"), "ssl.truststore.location: only one of it and ssl.truststore.certificates may be set"},
		{"old TLS", secured("ssl.enabled.protocols=TLSv1.1,TLSv1.2"), "ssl.enabled.protocols: TLSv1.1 is not supported, only TLSv1.2 and TLSv1.3"},
		{"no TLS", secured("ssl.enabled.protocols="), "ssl.enabled.protocols: it is empty; name TLSv1.2, TLSv1.3 or both"},
		{"another check of names", secured("ssl.endpoint.identification.algorithm=ldaps"), "ssl.endpoint.identification.algorithm: ldaps is not supported, only https, or nothing to check no names"},
		{"one listener's", secured("listener.name.controller.ssl.client.auth=none"), "listener.name.controller.ssl.client.auth: settings of single listeners are not supported yet; all listeners of nodes have the same, ssl.client.auth"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(Sources{FileName: "f", File: []byte(tt.file)})
			if err == nil || err.Error() != tt.want {
				t.Errorf("\n got %v\nwant %s", err, tt.want)
			}
		})
	}
}

// Settings of TLS that nothing uses are named.
func TestTLSSettingsForNothing(t *testing.T) {
	c, reports := load(t, Sources{FileName: "f", File: []byte("ssl.client.auth=required\nssl.keystore.key=geheim\nssl.keystore.type=JKS")})
	want := []Report{
		{Name: "ssl.client.auth", Value: "required", Origin: Origin{FromFile, "f"}, Kind: NoTLS},
		{Name: "ssl.keystore.key", Value: hidden, Origin: Origin{FromFile, "f"}, Kind: NoTLS},
	}
	if c.NodeTLS() || c.ProvesNodes() || len(reports) != 2 || reports[0] != want[0] || reports[1] != want[1] {
		t.Errorf("reported %+v", reports)
	}
}
