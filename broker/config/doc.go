// Package config knows every setting: its name (Kafka's own wherever Kafka has one), type, default, bounds, scope, the
// names it is also known by, and whether kaja enforces it yet. The parser, the checks at start, DescribeConfigs, the
// alter requests and docs/config.md are all driven by its two tables, ServerDefs and TopicDefs.
//
// A server's settings come from five places, later ones win: the built-in default, a properties file, KAFKA_*
// environment variables, KAJA_* environment variables, and name=value arguments (see Sources). The result is a Config,
// an immutable value that is safe for concurrent use. What a topic's log runs with is a Topic, computed from a Config,
// the dynamic broker settings and the topic's own overrides.
//
// The package parses and checks; it opens no file, reads no environment by itself, starts no goroutine and holds no
// lock. It does not turn settings into running parts: that is package broker's work.
package config
