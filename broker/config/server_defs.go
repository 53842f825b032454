package config

// server is the table of server properties: every one that Kafka 4.4 knows, and kaja's own. Differences from Kafka in
// defaults: node.id is 1, process.roles is broker,controller, and listeners is the loopback, so that a node without any
// configuration works.
var server = newTable(nodeTable, logTable, coordinatorTable, securityTable, remoteTable, kajaTable)

// serverDescribed is the table in the order of DescribeConfigs.
var serverDescribed = server.inOrder(brokerOrder)

// ServerDefs is every server property, sorted by name, hidden ones included. The caller must not change it.
func ServerDefs() []*Def { return server.defs }

// ServerDef finds a server property by its name.
func ServerDef(name string) (*Def, bool) { return server.lookup(name) }
