package compattests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/target"
)

// composedCluster is a compose file of several nodes as an image publishes it, without security.
type composedCluster struct {
	common string            // variables that all services have
	nodes  map[string]string // the others, by the name of the service
	order  []string          // of the services
	server string            // where a client in the same network connects
}

const apacheCommon = `CLUSTER_ID=4L6g3nShT-eMCtK--X86sw KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
	KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1 KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
	KAFKA_LOG_DIRS=/tmp/kraft-combined-logs`

const bitnamiCommon = `KAFKA_KRAFT_CLUSTER_ID=abcdefghijklmnopqrstuv KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
	KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER KAFKA_CFG_INTER_BROKER_LISTENER_NAME=PLAINTEXT
	KAFKA_CFG_OFFSETS_TOPIC_REPLICATION_FACTOR=3 KAFKA_CFG_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=3 KAFKA_CFG_TRANSACTION_STATE_LOG_MIN_ISR=2`

// composedClusters are the plaintext clusters of the two images: three nodes with both roles, and of each image's variables three
// controllers and three brokers apart (bitnami publishes that one in its documentation's words only).
func composedClusters() map[string]composedCluster {
	out := map[string]composedCluster{}
	add := func(name, common, server string, services ...string) {
		c := composedCluster{common: common, nodes: map[string]string{}, server: server}
		for i := 0; i < len(services); i += 2 {
			c.order = append(c.order, services[i])
			c.nodes[services[i]] = services[i+1]
		}
		out[name] = c
	}
	var combined, isolated, bitnami, bitnamiApart []string
	for i := range 3 {
		broker, controller := fmt.Sprintf("kafka-%d", i+1), fmt.Sprintf("controller-%d", i+1)
		port := 29092 + i*10000
		const maps = "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT "
		const apart = "KAFKA_CONTROLLER_QUORUM_VOTERS=1@controller-1:9093,2@controller-2:9093,3@controller-3:9093 "
		advertised := fmt.Sprintf("KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://%s:19092,PLAINTEXT_HOST://localhost:%d ", broker, port)
		combined = append(combined, broker, fmt.Sprintf("KAFKA_NODE_ID=%d KAFKA_PROCESS_ROLES=broker,controller ", i+1)+maps+advertised+
			"KAFKA_CONTROLLER_QUORUM_VOTERS=1@kafka-1:9093,2@kafka-2:9093,3@kafka-3:9093 KAFKA_LISTENERS=PLAINTEXT://:19092,CONTROLLER://:9093,PLAINTEXT_HOST://:9092")
		isolated = append(isolated, controller, fmt.Sprintf("KAFKA_NODE_ID=%d KAFKA_PROCESS_ROLES=controller KAFKA_LISTENERS=CONTROLLER://:9093 ", i+1)+apart)
		isolated = append(isolated, broker, fmt.Sprintf("KAFKA_NODE_ID=%d KAFKA_PROCESS_ROLES=broker KAFKA_LISTENERS=PLAINTEXT://:19092,PLAINTEXT_HOST://:9092 ", i+4)+maps+advertised+apart)
		bitnami = append(bitnami, fmt.Sprintf("kafka-%d", i), fmt.Sprintf("KAFKA_CFG_NODE_ID=%d KAFKA_CFG_PROCESS_ROLES=controller,broker ", i)+
			"KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@kafka-0:9093,1@kafka-1:9093,2@kafka-2:9093 KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093 KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://:9092")
		const quorum = "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=1@controller-1:9093,2@controller-2:9093,3@controller-3:9093 "
		bitnamiApart = append(bitnamiApart, controller, fmt.Sprintf("KAFKA_CFG_NODE_ID=%d KAFKA_CFG_PROCESS_ROLES=controller KAFKA_CFG_LISTENERS=CONTROLLER://:9093 ", i+1)+quorum)
		bitnamiApart = append(bitnamiApart, broker, fmt.Sprintf("KAFKA_CFG_NODE_ID=%d KAFKA_CFG_PROCESS_ROLES=broker KAFKA_CFG_LISTENERS=PLAINTEXT://:9092 KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://:9092 ", i+4)+quorum)
	}
	add("apache combined", apacheCommon, "kafka-1:19092", combined...)
	add("apache isolated", apacheCommon, "kafka-1:19092", isolated...)
	add("bitnami combined", bitnamiCommon, "kafka-0:9092", bitnami...)
	add("bitnami isolated", bitnamiCommon, "kafka-1:9092", bitnamiApart...)
	return out
}

// insideCluster runs in namespaces of its own, with whose first process all others end, where it makes a bridge and for each service a network namespace on it. Under $DIR lies
// for each of $SERVICES, in the order of their addresses, a root file system and a file of variables.
const insideCluster = `set -eu
mount -t tmpfs tmpfs /run; mkdir /run/netns
ip link set lo up; ip link add br0 type bridge; ip link set br0 up
i=0
for s in $SERVICES; do
  i=$((i+1)); ip netns add $s; ip link add v$i type veth peer name e0 netns $s; ip link set v$i master br0 up
  ip -n $s addr add 10.9.0.$i/24 dev e0; ip -n $s link set e0 up; ip -n $s link set lo up
done
start() { ip netns exec $1 unshare -u bash -c 'hostname $0; exec env -i $(cat $1/variables) "$(command -v chroot)" $1/root /kaja start' $1 $DIR/$1; }
if [ -n "$REFUSED" ]; then
  for s in $SERVICES; do if start $s >$DIR/$s/log 2>&1; then exit 9; fi; done
  exit 0
fi
pids=
for s in $SERVICES; do start $s >$DIR/$s/log 2>&1 & pids="$pids $!"; done
at() { ip netns exec $LAST chroot $DIR/$LAST/root /kaja "$@" -b $SERVER; }
for n in $(seq 600); do [ "$(at cluster info --json 2>/dev/null | grep -c '"host"')" = 3 ] && break; kill -0 $pids; sleep 0.1; done
at cluster info --json; at topic create greetings -p 3 -r 3 >&2
seq 100 | at produce greetings >&2
at consume greetings -g g -o start -n 100 2>/dev/null | sort -n
kill $pids; wait`

var secretLine = regexp.MustCompile(`(?m)KAJA_CLUSTER_SECRET=(\S+)$`)

func TestComposeFilesOfClustersStartKaja(t *testing.T) {
	if kind(t) != target.Kaja {
		t.Skip("about kaja's own start")
	}
	if os.Geteuid() != 0 || exec.Command("unshare", "-n", "-m", "-u", "ip", "link", "add", "br0", "type", "bridge").Run() != nil {
		t.Skip("needs the right to make namespaces, and a bridge")
	}
	binary := theSuite.options(t, target.Kaja).Binary
	for name, c := range composedClusters() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			hosts := "127.0.0.1 localhost\n"
			for i, service := range c.order {
				hosts += fmt.Sprintf("10.9.0.%d %s\n", i+1, service)
			}
			for _, service := range c.order {
				if err := os.MkdirAll(filepath.Join(dir, service, "root/etc"), 0o755); err != nil {
					t.Fatal(err)
				}
				copyFile(t, binary, filepath.Join(dir, service, "root/kaja"))
				writeFile(t, filepath.Join(dir, service, "root/etc/hosts"), hosts)
				writeFile(t, filepath.Join(dir, service, "variables"), strings.Join(strings.Fields(c.common+" "+c.nodes[service]), " "))
			}
			run := func(refused string) output {
				return execute(t, 3*time.Minute, "", []string{"DIR=" + dir, "SERVICES=" + strings.Join(c.order, " "), "LAST=" + c.order[len(c.order)-1],
					"SERVER=" + c.server, "REFUSED=" + refused}, "unshare", "-n", "-m", "-u", "-p", "--fork", "--kill-child", "bash", "-c", insideCluster) // no node outlives its shell
			}
			logs := func() (all []string) {
				for _, service := range c.order {
					data, _ := os.ReadFile(filepath.Join(dir, service, "log"))
					all = append(all, string(data))
				}
				return all
			}
			// As the files are, each node refuses, and prints the line that is missing.
			if o := run("yes"); o.Exit != 0 {
				t.Fatalf("without a secret: exit %d\n%s\n%s", o.Exit, o.Err, strings.Join(logs(), "\n"))
			}
			line := ""
			for i, log := range logs() {
				m := secretLine.FindStringSubmatch(log)
				if m == nil {
					t.Fatalf("%s prints no secret:\n%s", c.order[i], log)
				}
				line = " " + m[0]
			}
			for _, service := range c.order {
				writeFile(t, filepath.Join(dir, service, "variables"), strings.Join(strings.Fields(c.common+" "+c.nodes[service]), " ")+line)
			}
			o := run("")
			want := ""
			for i := range 100 {
				want += fmt.Sprintln(i + 1)
			}
			if o.Exit != 0 || !strings.HasSuffix(o.Out, "}\n"+want) {
				t.Errorf("exit %d\n%s\n%s\n%s", o.Exit, o.Out, o.Err, strings.Join(logs(), "\n"))
			}
			id := word(c.common, "CLUSTER_ID=")
			if !strings.Contains(o.Out, `"cluster_id": "`+id+`"`) {
				t.Errorf("the cluster is not %s:\n%s", id, o.Out)
			}
		})
	}
}
