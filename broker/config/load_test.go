package config

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func load(t *testing.T, s Sources) (*Config, []Report) {
	t.Helper()
	c, reports, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	return c, reports
}

func TestLoadNothing(t *testing.T) {
	c, reports := load(t, Sources{Env: []string{"HOME=/home/u"}})
	if len(reports) != 0 {
		t.Errorf("reports: %v", reports)
	}
	if diff := cmp.Diff([]string{"/home/u/.local/share/kaja"}, c.LogDirs()); diff != "" {
		t.Error(diff)
	}
	if c.NodeID() != 1 || c.MetadataDir() != "/home/u/.local/share/kaja" || c.Origin("node.id").Kind != FromDefault {
		t.Errorf("node %d, metadata %s", c.NodeID(), c.MetadataDir())
	}
	got, err := c.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	want := []Listener{{Name: "PLAINTEXT", Host: "localhost", Port: 9092, Protocol: Plaintext}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c.InterBrokerListener() != "PLAINTEXT" {
		t.Error(c.InterBrokerListener())
	}
}

func TestDataDir(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"xdg", []string{"HOME=/h", "XDG_DATA_HOME=/x/"}, "/x/kaja"},
		{"xdg must be absolute", []string{"HOME=/h", "XDG_DATA_HOME=x"}, "/h/.local/share/kaja"},
		{"last one wins", []string{"HOME=/h", "HOME=/i"}, "/i/.local/share/kaja"},
		{"no home", nil, "kaja-data"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := load(t, Sources{Env: tt.env})
			if got := c.LogDirs()[0]; got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestLoadCombinedNodeFile(t *testing.T) {
	data, err := os.ReadFile("testdata/combined.properties")
	if err != nil {
		t.Fatal(err)
	}
	c, reports := load(t, Sources{FileName: "combined.properties", File: data})
	from := Origin{FromFile, "combined.properties"}
	want := []Report{
		{"share.coordinator.state.topic.min.isr", "1", from, NotSupported},
		{"share.coordinator.state.topic.replication.factor", "1", from, NotSupported},
	}
	if diff := cmp.Diff(want, reports); diff != "" {
		t.Error(diff)
	}
	got, err := c.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	listeners := []Listener{
		{Name: "PLAINTEXT", Port: 9092, Protocol: Plaintext, Advertised: &HostPort{"localhost", 9092}},
		{Name: "CONTROLLER", Port: 9093, Protocol: Plaintext, Controller: true, Advertised: &HostPort{"localhost", 9093}},
	}
	if diff := cmp.Diff(listeners, got); diff != "" {
		t.Error(diff)
	}
	if c.Int("offsets.topic.replication.factor") != 1 || !c.IsSet("offsets.topic.replication.factor") {
		t.Error("offsets.topic.replication.factor is lost")
	}
}

// What the Java module of Testcontainers sets for the apache/kafka image.
func TestLoadContainerEnvironment(t *testing.T) {
	c, reports := load(t, Sources{Hostname: "4ad5b1d5", Env: []string{
		"KAFKA_LISTENERS=PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094",
		"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:32768,BROKER://4ad5b1d5:9093", "KAFKA_INTER_BROKER_LISTENER_NAME=BROKER",
		"KAFKA_PROCESS_ROLES=broker,controller", "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER", "KAFKA_NODE_ID=1", "KAFKA_BROKER_ID=1",
		"KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9094", "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1", "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=1",
		"KAFKA_LOG_FLUSH_INTERVAL_MESSAGES=9223372036854775807", "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0", "KAFKA_REST_BOOTSTRAP_SERVERS=x"}})
	if len(reports) != 1 || reports[0].Name != "rest.bootstrap.servers" {
		t.Errorf("reports: %v", reports)
	}
	listeners, err := c.Listeners()
	if err != nil || len(listeners) != 3 || !listeners[2].Controller || listeners[0].Advertised.Port != 32768 || c.InterBrokerListener() != "BROKER" {
		t.Errorf("%+v (%v)", listeners, err)
	}
}

func TestPrecedence(t *testing.T) {
	s := Sources{
		FileName: "f", File: []byte("num.partitions=2\nlog.segment.bytes=2000000\nbroker.rack=file\nfetch.max.bytes=2048\noffset.metadata.max.bytes=5\n"),
		Env: []string{"KAJA_NUM_PARTITIONS=4", "KAFKA_NUM_PARTITIONS=3", "KAFKA_CFG_NUM_PARTITIONS=9", "KAFKA_LOG_SEGMENT_BYTES=3000000",
			"KAFKA_CFG_LOG_SEGMENT_BYTES=9000000", "KAJA_BROKER_RACK=env", "KAFKA_CFG_FETCH_MAX_BYTES=4096", "KAJA_FSYNC=always"},
		Set: []string{"num.partitions=5", "num.partitions=6"},
	}
	c, reports := load(t, s)
	if len(reports) != 0 {
		t.Errorf("reports: %v", reports)
	}
	type row struct {
		Value string
		From  Origin
	}
	got := map[string]row{}
	for _, name := range []string{"num.partitions", "log.segment.bytes", "broker.rack", "fetch.max.bytes", "kaja.fsync", "offset.metadata.max.bytes"} {
		v, o := c.lookup(mustDef(name))
		got[name] = row{Format(v), o}
	}
	want := map[string]row{
		"num.partitions":            {"6", Origin{FromArgument, "--set num.partitions"}},
		"log.segment.bytes":         {"3000000", Origin{FromKafkaEnv, "environment variable KAFKA_LOG_SEGMENT_BYTES"}},
		"broker.rack":               {"env", Origin{FromKajaEnv, "environment variable KAJA_BROKER_RACK"}},
		"fetch.max.bytes":           {"4096", Origin{FromKafkaEnv, "environment variable KAFKA_CFG_FETCH_MAX_BYTES"}},
		"kaja.fsync":                {"always", Origin{FromKajaEnv, "environment variable KAJA_FSYNC"}},
		"offset.metadata.max.bytes": {"5", Origin{FromFile, "f"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEnvironmentNames(t *testing.T) {
	for in, want := range map[string]string{
		"LISTENER_NAME_X_SCRAM___SHA___256_SASL_JAAS_CONFIG": "listener.name.x.scram-sha-256.sasl.jaas.config",
		"LISTENER_NAME_X_SCRAM-SHA-256_SASL_JAAS_CONFIG":     "listener.name.x.scram-sha-256.sasl.jaas.config",
		"A__B": "a_b", "A___B": "a-b", "A____B": "a-.b", "A_____B": "a-_b", "A______B": "a--b", "A_B__": "a.b_", "_A": ".a", "a_B": "a.b",
	} {
		if got := propertyName(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	c, reports := load(t, Sources{Env: []string{"KAFKA_VERSION=4.4.0", "KAFKA_HEAP_OPTS=-Xmx1g", "KAFKA_LOG4J_ROOT_LOGLEVEL=WARN", "KAFKA_=x", "OTHER=1", "odd"}})
	if len(reports) != 0 || c.String("kaja.log.level") != "warn" {
		t.Errorf("reports %v, level %s", reports, c.String("kaja.log.level"))
	}
}

func TestReports(t *testing.T) {
	_, got := load(t, Sources{
		FileName: "f",
		File:     []byte("zookeeper.connect=z:2181\nnum.io.threads=16\nssl.keystore.password=geheim\nlistener.name.x.ssl.client.auth=required\nauthorizer.class.name=\ndelegation.token.secret.key=\n"),
		Env:      []string{"KAFKA_NUM_REPLICA_FETCHERS=5"},
		Set:      []string{"own.secret=geheim"},
	})
	want := []Report{
		{"listener.name.x.ssl.client.auth", hidden, Origin{FromFile, "f"}, NotSupported},
		{"num.io.threads", "16", Origin{FromFile, "f"}, NotApplicable},
		{"num.replica.fetchers", "5", Origin{FromKafkaEnv, "environment variable KAFKA_NUM_REPLICA_FETCHERS"}, NotSupported},
		{"own.secret", hidden, Origin{FromArgument, "--set own.secret"}, Unknown},
		{"ssl.keystore.password", hidden, Origin{FromFile, "f"}, NotSupported},
		{"zookeeper.connect", hidden, Origin{FromFile, "f"}, Unknown},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPropertiesSyntax(t *testing.T) {
	file := "# comment\n! comment\n  broker.rack : a\\u00e9\\\n    b  \nkaja.cluster.id=\nnum.partitions 7\nsuper.x = ${env:HOME}\n"
	c, _ := load(t, Sources{FileName: "f", File: []byte(file)})
	if got := c.String("broker.rack"); got != "aéb" || c.Int("num.partitions") != 7 {
		t.Errorf("rack %q, partitions %d", got, c.Int("num.partitions"))
	}
	if c, _ := load(t, Sources{File: []byte("broker.rack=\xe9")}); c.String("broker.rack") != "é" {
		t.Error("ISO 8859-1 is not read")
	}
}

// Every wrong setting is told at once, with its name and where it came from.
func TestLoadErrors(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"not a number", "num.partitions=x", "num.partitions (from f): Invalid value x for configuration num.partitions: Not a number of type INT"},
		{"out of bounds", "node.id=-1", "node.id (from f): Invalid value -1 for configuration node.id: Value must be at least 0"},
		{"two at once", "num.partitions=0\nlog.segment.bytes=1", "log.segment.bytes (from f): Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576\nnum.partitions (from f): Invalid value 0 for configuration num.partitions: Value must be at least 1"},
		{"refused", "authorizer.class.name=org.Acl", "authorizer.class.name (from f): org.Acl is not supported yet, and running without it would not be what was asked for; remove the setting"},
		{"ids differ", "node.id=1\nbroker.id=2", "broker.id: 2 differs from node.id 1; leave one of them out"},
		{"broker alone", "process.roles=broker", "process.roles: a broker alone needs controllers; name them in controller.quorum.bootstrap.servers or controller.quorum.voters"},
		{"broker with a controller listener", "process.roles=broker\nlisteners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C\ncontroller.quorum.bootstrap.servers=a:1", "process.roles: a broker alone has no controller listener; take the listeners of controller.listener.names (C) out of listeners"},
		{"controller with a listener for clients", "process.roles=controller\nlisteners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C", "process.roles: a controller alone has no listeners but those of controller.listener.names (C); listeners has PLAINTEXT, C"},
		{"a role twice", "process.roles=broker,controller,broker", `process.roles: "broker,controller,broker" is not broker, controller or both`},
		{"cluster id", "kaja.cluster.id=x", `kaja.cluster.id: "x" is not a Kafka uuid: want 22 characters of URL-safe base64`},
		{"same dir twice", "log.dirs=/a,/a", "log.dirs: /a is there twice"},
		{"empty dir", "log.dirs=/a,", "log.dirs: at least one directory is needed, and none may be empty"},
		{"retention", "log.retention.hours=0", "log.retention.hours: retention must be -1 (unlimited) or at least 1 ms"},
		{"budget", "queued.max.request.bytes=1000", "queued.max.request.bytes: 1000 is less than socket.request.max.bytes (104857600), so the largest request could never be read"},
		{"no port", "listeners=PLAINTEXT://localhost", `listeners: "PLAINTEXT://localhost" is not a listener: want NAME://host:port`},
		{"port", "listeners=PLAINTEXT://:70000", `listeners: the port of "PLAINTEXT://:70000" is not between 0 and 65535`},
		{"name twice", "listeners=a://:1,A://:2", "listeners: each listener must have a different name, A is there twice: a://:1,A://:2"},
		{"port twice", "listeners=A://:1,B://h:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "listeners: each listener must have a different port, unless one has an IPv4 and the other an IPv6 address: A://:1, B://h:1"},
		{"no listener", "listeners=", "listeners: at least one listener is needed"},
		{"tls", "listeners=SSL://:9093", "listener SSL: security protocol SSL is not supported yet for clients, only PLAINTEXT; if it is for nodes add inter.broker.listener.name=SSL"},
		{"sasl", "listeners=SASL_SSL://:9093", "listener SASL_SSL: security protocol SASL_SSL is not supported yet, only PLAINTEXT, and SSL between nodes"},
		{"unmapped", "listeners=EXT://:9093", "listener.security.protocol.map: no security protocol for listener EXT; add EXT:PLAINTEXT"},
		{"map", "listener.security.protocol.map=A", `listener.security.protocol.map: "A" is not NAME:PROTOCOL`},
		{"map protocol", "listener.security.protocol.map=A:TLS", `listener.security.protocol.map: "TLS" is not a security protocol; want PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL`},
		{"advertised stranger", "listeners=PLAINTEXT://:9092\nadvertised.listeners=X://h:1", "advertised.listeners: X is not a listener of this node; listeners has PLAINTEXT"},
		{"advertised wildcard", "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092", "advertised.listeners: PLAINTEXT://0.0.0.0:9092 is not an address that clients can connect to; name a host, or leave the setting out"},
		{"only controllers", "listeners=C://:9093\ncontroller.listener.names=C", "controller.listener.names: it names all listeners (C); clients need one more"},
		{"controller not there", "listeners=PLAINTEXT://:9092\ncontroller.listener.names=C", "controller.listener.names: C is not in listeners (PLAINTEXT)"},
		{"inter broker", "inter.broker.listener.name=X", "inter.broker.listener.name: X is not in listeners (PLAINTEXT)"},
		{"inter broker twice", "inter.broker.listener.name=X\nsecurity.inter.broker.protocol=PLAINTEXT", "inter.broker.listener.name: only one of it and security.inter.broker.protocol may be set"},
		{"a voter is just broker", "process.roles=broker\ncontroller.quorum.voters=1@a:1,2@b:1,3@c:1", "controller.quorum.voters: it names node 1, whose process.roles is just broker"},
		{"a voter twice", "controller.quorum.voters=1@a:1,1@b:1", "controller.quorum.voters: node 1 is there twice"},
		{"secret", "kaja.cluster.secret=short", "kaja.cluster.secret: it has 5 bytes, the least is 16"},
		{"other voter", "controller.quorum.voters=2@a:1", "controller.quorum.voters: it does not name node 1, whose process.roles has controller"},
		{"bad voter", "controller.quorum.voters=a:1", `controller.quorum.voters: "a:1" is not id@host:port`},
		{"bad bootstrap", "controller.quorum.bootstrap.servers=other", `controller.quorum.bootstrap.servers: "other" is not host:port`},
		{"connections", "max.connections.per.ip.overrides=h:1", `max.connections.per.ip.overrides: "h:1" is not address:number, with an IP address`},
		{"connections", "max.connections.per.ip=0", "max.connections.per.ip: 0 shuts everybody out; it needs max.connections.per.ip.overrides"},
		{"http", "kaja.http.listener=9644", `kaja.http.listener: "9644" is not host:port`},
		{"escape", "a=\\u12", "f: not a properties file: properties: Line 1: invalid unicode literal"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := Load(Sources{FileName: "f", File: []byte(tt.file), Hostname: "me"})
			if err == nil {
				t.Fatal("no error")
			}
			if got := err.Error(); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
		})
	}
	_, _, err := Load(Sources{Set: []string{"x"}})
	if _, ok := errors.AsType[*UsageError](err); !ok {
		t.Errorf("got %v, want *UsageError", err)
	}
	_, _, err = Load(Sources{FileName: "f", File: []byte("kaja.cluster.id=x\nconfig.providers=file\nssl.keystore.password=geheim\nssl.enabled.protocols=x")})
	if err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("a password is shown: %v", err)
	}
}

func TestListenersAccepted(t *testing.T) {
	tests := []struct {
		name, file string
		want       []Listener
	}{
		{"ipv6", "listeners=PLAINTEXT://[::1]:9092", []Listener{{Name: "PLAINTEXT", Host: "::1", Port: 9092, Protocol: Plaintext}}},
		{"lower case names", "listeners=ext://h:0\nlistener.security.protocol.map=Ext:plaintext", []Listener{{Name: "EXT", Host: "h", Protocol: Plaintext}}},
		{"one port, two families", "listeners=A://127.0.0.1:1,B://[::1]:1\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
			[]Listener{{Name: "A", Host: "127.0.0.1", Port: 1, Protocol: Plaintext}, {Name: "B", Host: "::1", Port: 1, Protocol: Plaintext}}},
		{"controller without map", "listeners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C\ncontroller.quorum.voters=1@me:2",
			[]Listener{{Name: "PLAINTEXT", Port: 1, Protocol: Plaintext}, {Name: "C", Port: 2, Protocol: Plaintext, Controller: true}}},
		{"advertised alone", "advertised.listeners=PLAINTEXT://kaja:9094",
			[]Listener{{Name: "PLAINTEXT", Port: 9094, Protocol: Plaintext, Advertised: &HostPort{"kaja", 9094}}}},
		{"bootstrap by the machine's name", "listeners=PLAINTEXT://:1,C://:2\ncontroller.listener.names=C\ncontroller.quorum.bootstrap.servers=ME:2",
			[]Listener{{Name: "PLAINTEXT", Port: 1, Protocol: Plaintext}, {Name: "C", Port: 2, Protocol: Plaintext, Controller: true}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := load(t, Sources{FileName: "f", File: []byte(tt.file), Hostname: "me"})
			got, err := c.Listeners()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	c, _ := load(t, Sources{File: []byte("listeners=EXT://h:0\nlistener.security.protocol.map=EXT:PLAINTEXT")})
	if c.InterBrokerListener() != "EXT" {
		t.Errorf("inter-broker listener: %s", c.InterBrokerListener())
	}
}

func TestConnectionsPerIP(t *testing.T) {
	c, _ := load(t, Sources{File: []byte("max.connections.per.ip.overrides=10.0.0.1:5, [::1]:0 ,fe80::1:7")})
	got, err := c.ConnectionsPerIP()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"10.0.0.1": 5, "::1": 0, "fe80::1": 7}, got); diff != "" {
		t.Error(diff)
	}
}

func TestSynonymsOfServerProperties(t *testing.T) {
	c, _ := load(t, Sources{File: []byte("broker.id=7\nlog.dir=/one\nlog.retention.hours=1\nlog.roll.hours=2\nlog.flush.scheduler.interval.ms=9")})
	if c.NodeID() != 7 || c.LogDirs()[0] != "/one" || c.Duration("log.retention.ms") != time.Hour || c.Duration("log.roll.ms") != 2*time.Hour || c.Int64("log.flush.interval.ms") != 9 {
		t.Errorf("%d %v %v", c.NodeID(), c.LogDirs(), c.Duration("log.retention.ms"))
	}
	if c.Origin("node.id").Kind != FromFile {
		t.Error("origin of a synonym is lost")
	}
	c, _ = load(t, Sources{File: []byte("log.retention.hours=-1")})
	if c.Int64("log.retention.ms") != -1 || EffectiveTopic(c, Dynamic{}, nil).RetentionAge >= 0 {
		t.Error("-1 hours is not unlimited")
	}
}

// Every default parses and passes its own rule, every setting says what it is for, and every synonym exists.
func TestTables(t *testing.T) {
	for _, def := range append(append([]*Def{}, ServerDefs()...), TopicDefs()...) {
		if def.Doc == "" || !strings.HasSuffix(def.Doc, ".") {
			t.Errorf("%s: no doc", def.Name)
		}
		if !def.NoDefault {
			if _, err := def.Parse(def.Default); err != nil && def.Default != "" {
				t.Errorf("%s: %v", def.Name, err)
			}
		}
		for _, syn := range def.Synonyms {
			mustDef(syn.Name)
		}
	}
	c := Default("/d")
	for _, def := range TopicDefs() {
		for _, syn := range def.Synonyms[:min(1, len(def.Synonyms))] {
			v, _ := c.lookup(mustDef(syn.Name))
			if got := Format(scaleValue(v, syn.Scale)); got != def.Default {
				t.Errorf("%s: default %s, its synonym's %s", def.Name, def.Default, got)
			}
		}
	}
}

func FuzzLoad(f *testing.F) {
	data, err := os.ReadFile("testdata/combined.properties")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data, "KAFKA_NODE_ID=2", "num.partitions=3")
	f.Add([]byte("listeners=A://[::1]:0,B://%:9\nadvertised.listeners=\\u00"), "KAJA_LISTENERS=://", "=")
	f.Add([]byte("min.cleanable=\\\r\n\tx:y\n!"), "KAFKA___=1", "controller.quorum.voters=1@[::1]:1")
	f.Fuzz(func(t *testing.T, file []byte, env, set string) {
		c, _, err := Load(Sources{FileName: "f", File: file, Env: []string{env}, Set: []string{set}})
		if err != nil {
			return
		}
		if _, err := c.Listeners(); err != nil {
			t.Errorf("loaded, but: %v", err)
		}
		EffectiveTopic(c, Dynamic{}, nil)
	})
}

func FuzzParseListener(f *testing.F) {
	for _, s := range []string{"PLAINTEXT://:9092", "a://[::1]:0", "a://b://c:1", "x://h:-1", "x://h:99999999999999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := parseListener(s)
		if err != nil {
			return
		}
		again, err := parseListener(l.String())
		if err != nil || again != l {
			t.Errorf("%q: %v becomes %v (%v)", s, l, again, err)
		}
	})
}

func TestQuorum(t *testing.T) {
	const two = "listeners=PLAINTEXT://:9092,C://:9093\ncontroller.listener.names=C\n"
	tests := []struct {
		name, file string
		alone      bool
		listed     string
	}{
		{"nothing", "", true, ""},
		{"itself by id", two + "controller.quorum.voters=1@me:9093", true, "me:9093"},
		{"itself by address", two + "controller.quorum.bootstrap.servers=localhost:9093", true, "localhost:9093"},
		{"without a controller listener", "controller.quorum.bootstrap.servers=ME:9092", true, "ME:9092"},
		{"the port of clients", two + "controller.quorum.bootstrap.servers=localhost:9092", false, "localhost:9092"},
		{"three", two + "controller.quorum.voters=3@c:1,1@a:1,2@b:1", false, "a:1 b:1 c:1"},
		{"both ways", two + "controller.quorum.voters=1@a:1,2@b:1\ncontroller.quorum.bootstrap.servers=a:1,c:1", false, "a:1 b:1 c:1"},
		{"another", "controller.quorum.bootstrap.servers=other:9092", false, "other:9092"},
		{"a broker alone", "process.roles=broker\ncontroller.quorum.bootstrap.servers=me:9092", false, "me:9092"},
		{"a controller alone", "process.roles=controller\nlisteners=C://:9093\ncontroller.listener.names=C", true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := Load(Sources{FileName: "f", File: []byte(tt.file), Hostname: "me"})
			if err != nil {
				t.Fatal(err)
			}
			q, err := c.Quorum("me")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(q.Listed, " "); q.Alone != tt.alone || got != tt.listed {
				t.Errorf("alone %v, listed %q; want %v, %q", q.Alone, got, tt.alone, tt.listed)
			}
		})
	}
}
