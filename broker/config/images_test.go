package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the compose files of the two images set for one node without security.
var composeFiles = map[string]struct {
	hostname string
	env      string
	want     []string // listeners, and what is advertised of them
	id       string
	node     int32
}{
	"apache, single node": {"broker", `CLUSTER_ID=4L6g3nShT-eMCtK--X86sw KAFKA_NODE_ID=1
		KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
		KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092 KAFKA_PROCESS_ROLES=broker,controller
		KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:29093 KAFKA_LISTENERS=CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092
		KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
		KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1 KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR=1
		KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR=1 KAFKA_LOG_DIRS=/tmp/kraft-combined-logs`,
		[]string{"CONTROLLER://:29093 controller", "PLAINTEXT_HOST://:9092 localhost:9092", "PLAINTEXT://:19092 broker:19092"}, "4L6g3nShT-eMCtK--X86sw", 1},
	"apache, of its read me": {"7f", `KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller KAFKA_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093
		KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092 KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093
		KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
		KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1 KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 KAFKA_NUM_PARTITIONS=3`,
		[]string{"PLAINTEXT://:9092 localhost:9092", "CONTROLLER://:9093 controller"}, "", 1},
	"bitnami, single node": {"kafka", `KAFKA_CFG_NODE_ID=0 KAFKA_CFG_PROCESS_ROLES=controller,broker KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@kafka:9093
		KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093 KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://:9092
		KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_CFG_INTER_BROKER_LISTENER_NAME=PLAINTEXT ALLOW_PLAINTEXT_LISTENER=yes KAFKA_ENABLE_KRAFT=yes BITNAMI_DEBUG=true
		KAFKA_KRAFT_CLUSTER_ID=abcdefghijklmnopqrstuv`,
		[]string{"PLAINTEXT://:9092", "CONTROLLER://:9093 controller"}, "abcdefghijklmnopqrstuv", 0},
	"bitnami, seen from inside and outside": {"kafka", `KAFKA_CFG_NODE_ID=0 KAFKA_CFG_PROCESS_ROLES=controller,broker
		KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@localhost:9093 KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093,EXTERNAL://:9094
		KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://kafka:9092,EXTERNAL://localhost:9094 KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT KAFKA_HEAP_OPTS=-Xmx512m`,
		[]string{"PLAINTEXT://:9092 kafka:9092", "CONTROLLER://:9093 controller", "EXTERNAL://:9094 localhost:9094"}, "", 0},
	"only what is advertised": {"c1", `KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://kaja:9092`, []string{"PLAINTEXT://:9092 kaja:9092"}, "", 1},
}

func TestComposeFiles(t *testing.T) {
	for name, tt := range composeFiles {
		t.Run(name, func(t *testing.T) {
			c, reports := load(t, Sources{Hostname: tt.hostname, Env: strings.Fields(tt.env)})
			for _, r := range reports {
				if strings.HasPrefix(r.Name, "share.coordinator.") && r.Kind == NotSupported {
					continue // there are no share groups yet, and the start says so
				}
				t.Errorf("no effect: %s from %s (%s)", r.Name, r.Origin.Where, r.Kind)
			}
			listeners, err := c.Listeners()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, l := range listeners {
				text := l.String()
				if l.Controller {
					text += " controller"
				}
				if l.Advertised != nil {
					text += fmt.Sprint(" ", l.Advertised)
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if c.String("kaja.cluster.id") != tt.id || c.NodeID() != tt.node {
				t.Errorf("cluster %q, node %d", c.String("kaja.cluster.id"), c.NodeID())
			}
		})
	}
}
