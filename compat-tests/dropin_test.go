package compattests_test

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kajamq/kaja/compat-tests/internal/poll"
	"github.com/kajamq/kaja/compat-tests/internal/raw"
	"github.com/kajamq/kaja/compat-tests/internal/target"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// composed are services of compose files as the apache/kafka and bitnami images publish them, one node without security. Only
// the image line is changed, which here means: in an empty root file system with nothing but a static kaja in it, in a network
// and under a host name of its own, with exactly these variables.
//
// A service with a volume is made anew for each start, as "docker compose down" and "up" do: only what is on the volume is there again.
var composed = map[string]struct{ hostname, env, server, dir, volume string }{ //nolint:gochecknoglobals // a table
	"apache": {"broker", `CLUSTER_ID=4L6g3nShT-eMCtK--X86sw KAFKA_NODE_ID=1
		KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
		KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092 KAFKA_PROCESS_ROLES=broker,controller
		KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:29093 KAFKA_LISTENERS=CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092
		KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1 KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0 KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
		KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1 KAFKA_SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR=1
		KAFKA_SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR=1 KAFKA_LOG_DIRS=/tmp/kraft-combined-logs`, "127.0.0.1:9092", "tmp/kraft-combined-logs", ""},
	"apache without a variable, a volume": {"broker", "CLUSTER_ID=4L6g3nShT-eMCtK--X86sw", "127.0.0.1:9092", "tmp/kraft-combined-logs", "tmp/kraft-combined-logs"},
	"apache without log.dirs, a volume": {"broker", `CLUSTER_ID=4L6g3nShT-eMCtK--X86sw KAFKA_NODE_ID=1 KAFKA_PROCESS_ROLES=broker,controller
		KAFKA_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093 KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092
		KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER KAFKA_CONTROLLER_QUORUM_VOTERS=1@localhost:9093
		KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT`, "127.0.0.1:9092", "tmp/kafka-logs", "tmp/kafka-logs"},
	"bitnami": {"kafka", bitnamiSingle, "127.0.0.1:9092", "kaja-data", ""},
	// bitnami publishes it with the volume kafka_data:/bitnami, and without log.dirs.
	"bitnami, a volume": {"kafka", bitnamiSingle, "127.0.0.1:9092", "bitnami/kafka/data", "bitnami"},
}

const bitnamiSingle = `KAFKA_CFG_NODE_ID=0 KAFKA_CFG_PROCESS_ROLES=controller,broker KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@kafka:9093
		KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093 KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://:9092
		KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
		KAFKA_CFG_INTER_BROKER_LISTENER_NAME=PLAINTEXT ALLOW_PLAINTEXT_LISTENER=yes KAFKA_ENABLE_KRAFT=yes
		KAFKA_KRAFT_CLUSTER_ID=abcdefghijklmnopqrstuv`

// inside runs in the namespaces: it starts the node as the container would, waits until it serves, uses it as a client in the
// same network, stops it, and starts it once more on the same data. Below $BASE are an image's files and what is on its volume.
const inside = `set -eu
ip link set lo up; hostname "$HOST"
at() { chroot "$ROOT" /kaja "$@" -b "$SERVER"; }
container() {
  [ -n "$VOLUME" ] || { ROOT=$BASE/image; return; }
  ROOT=$BASE/container.$1; mkdir -p "$BASE/volume" "$ROOT"; cp -a "$BASE/image/." "$ROOT"
  mkdir -p "$ROOT/proc" "$ROOT/$VOLUME"; mount --bind /proc "$ROOT/proc"; mount --bind "$BASE/volume" "$ROOT/$VOLUME"
}
for round in 1 2; do
  container $round
  env -i $VARS "$(command -v chroot)" "$ROOT" /kaja start >"$BASE/log.$round" 2>&1 & pid=$!
  for i in $(seq 100); do at cluster info >/dev/null 2>&1 && break; kill -0 $pid; sleep 0.1; done
  at doctor >&2
  at produce greetings "round $round" 2>/dev/null
  kill $pid; wait $pid
done
container 3
env -i $VARS "$(command -v chroot)" "$ROOT" /kaja start >"$BASE/log.3" 2>&1 & pid=$!
for i in $(seq 100); do at cluster info >/dev/null 2>&1 && break; kill -0 $pid; sleep 0.1; done
at cluster info --json; at consume greetings -o start -e 2>/dev/null; at consume greetings -g g -o start -n 2 2>/dev/null
kill $pid; wait $pid`

func TestComposeFilesStartKaja(t *testing.T) {
	if kind(t) != target.Kaja {
		t.Skip("about kaja's own start")
	}
	if os.Geteuid() != 0 || exec.Command("unshare", "-n", "-u", "-m", "true").Run() != nil {
		t.Skip("needs the right to make namespaces")
	}
	binary := theSuite.options(t, target.Kaja).Binary // static, so that it runs where nothing else is
	for name, c := range composed {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			root := filepath.Join(base, "image")
			if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			copyFile(t, binary, filepath.Join(root, "kaja"))
			writeFile(t, filepath.Join(root, "etc/hosts"), "127.0.0.1 localhost "+c.hostname+"\n") // as in every container
			o := execute(t, 2*time.Minute, "", []string{"BASE=" + base, "VOLUME=" + c.volume, "HOST=" + c.hostname, "SERVER=" + c.server, "VARS=" + strings.Join(strings.Fields(c.env), " ")},
				"unshare", "-n", "-u", "-m", "bash", "-c", inside)
			var logs strings.Builder
			for i := 1; i <= 3; i++ {
				data, _ := os.ReadFile(fmt.Sprintf("%s/log.%d", base, i))
				logs.Write(data)
			}
			if o.Exit != 0 {
				t.Fatalf("exit %d\n%s\n%s\n%s", o.Exit, o.Out, o.Err, logs.String())
			}
			if !strings.HasSuffix(o.Out, "}\nround 1\nround 2\nround 1\nround 2\n") {
				t.Errorf("read:\n%s", o.Out)
			}
			for _, want := range []string{"Transitioning from RECOVERY to RUNNING", "Kafka Server started"} {
				if strings.Count(logs.String(), want) != 3 {
					t.Errorf("%q is logged %d times, want once a start:\n%s", want, strings.Count(logs.String(), want), logs.String())
				}
			}
			data := filepath.Join(root, c.dir)
			if c.volume != "" {
				data = filepath.Join(base, "volume", strings.TrimPrefix(c.dir, c.volume))
			}
			if _, err := os.Stat(filepath.Join(data, "meta.properties")); err != nil {
				t.Error(err)
			}
			if id := word(c.env, "CLUSTER_ID="); !strings.Contains(o.Out, `"cluster_id": "`+id+`"`) {
				t.Errorf("the cluster is not %s:\n%s", id, o.Out)
			}
		})
	}
}

// word is what follows prefix up to white space.
func word(text, prefix string) string {
	_, after, _ := strings.Cut(text, prefix)
	return strings.Fields(after)[0]
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A directory in which Kafka ran is refused, and nothing in it is changed.
func TestKafkasDirectories(t *testing.T) {
	need(t, "java")
	kafka := startOwn(t, target.Kafka, nil)
	if err := kafka.Stop(); err != nil {
		t.Fatal(err)
	}
	before := hashes(t, kafka.DataDir())
	binary := theSuite.options(t, target.Kaja).Binary
	args := []string{"start", "--set", "log.dirs=" + kafka.DataDir(), "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "kaja.http.listener=", "--set", "node.id=" + metaValue(t, kafka.DataDir(), "node.id")}
	o := execute(t, time.Minute, "", nil, binary, args...)
	if o.Exit != 1 || !strings.Contains(o.Err, "kaja: use directory "+kafka.DataDir()+": it is not empty and there is no metadata store in ") ||
		!strings.Contains(o.Err, "__cluster_metadata-0/00000000000000000000.log") || !strings.Contains(o.Err, "Nothing was changed.") {
		t.Errorf("exit %d\n%s", o.Exit, o.Err)
	}
	if after := hashes(t, kafka.DataDir()); after != before {
		t.Errorf("the directory was changed:\n%s\nbefore\n%s", after, before)
	}
}

// A directory that Kafka's own storage tool has formatted, with the options that people use, is taken over by kaja with the same file
// of settings, and its ids stay; one that asks for what kaja does not have is refused, and not a byte of it is changed.
func TestDirectoriesOfKafkasStorageTool(t *testing.T) {
	set := need(t, "java")
	if kind(t) != target.Kaja {
		t.Skip("about kaja's own start")
	}
	binary := theSuite.options(t, target.Kaja).Binary
	const id = "5L6g3nShT-eMCtK--X86sw"
	for name, tt := range map[string]struct {
		settings, refused string
		format            []string
	}{
		"standalone":    {format: []string{"--standalone"}},
		"static voters": {settings: "controller.quorum.voters=1@CONTROLLER\n"},
		"feature":       {format: []string{"--standalone", "--feature", "transaction.version=1"}},
		"SCRAM": {format: []string{"--standalone", "--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]"},
			refused: "it holds SCRAM credentials (--add-scram), which kaja does not have yet"},
		"old release": {format: []string{"--standalone", "--release-version", "4.0-IV3"}, refused: "it was formatted for metadata.version 25, and kaja has 33 to 33"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, plain, controller := t.TempDir(), freeAddr(t), freeAddr(t)
			data, file := filepath.Join(dir, "data"), filepath.Join(dir, "server.properties")
			if tt.settings == "" {
				tt.settings = "controller.quorum.bootstrap.servers=CONTROLLER\n"
			}
			writeFile(t, file, strings.ReplaceAll(tt.settings, "CONTROLLER", controller)+"process.roles=broker,controller\nnode.id=1\nlog.dirs="+data+
				"\nlisteners=PLAINTEXT://"+plain+",CONTROLLER://"+controller+"\ncontroller.listener.names=CONTROLLER\n"+
				"listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n")
			args := append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(set.Jars(), "*"), "kafka.tools.StorageTool", "format", "-t", id, "-c", file}, tt.format...)
			if o := execute(t, time.Minute, "", nil, "java", args...); o.Exit != 0 {
				t.Fatalf("kafka-storage format: exit %d\n%s%s", o.Exit, o.Out, o.Err)
			}
			before, directory := hashes(t, data), metaValue(t, data, "directory.id")
			start := []string{"start", file, "--set", "kaja.http.listener="}
			if tt.refused != "" {
				o := execute(t, time.Minute, "", nil, binary, start...)
				if o.Exit != 1 || !strings.Contains(o.Err, tt.refused) {
					t.Errorf("exit %d, want a refusal: %s\n%s", o.Exit, tt.refused, o.Err)
				}
				if after := hashes(t, data); after != before {
					t.Errorf("the directory was changed:\n%s\nbefore\n%s", after, before)
				}
				return
			}
			p := startProcess(t, binary, start...)
			var c *raw.Conn
			err := poll.Until(t.Context(), time.Minute, "kaja serves", func() (ok bool, err error) {
				select {
				case <-p.done:
					t.Fatalf("it has ended:\n%s", p.err.String())
				default:
				}
				c, err = raw.Dial(plain)
				return err == nil, err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			if got := deref(metadata(t, c, 12, false).ClusterID); got != id || metaValue(t, data, "cluster.id") != id || metaValue(t, data, "directory.id") != directory {
				t.Errorf("cluster %s, directory %s, they were %s and %s", got, metaValue(t, data, "directory.id"), id, directory)
			}
			req := kmsg.NewPtrApiVersionsRequest()
			req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 4, "raw", "1"
			level := int16(2)
			if name == "feature" {
				level = 1
			}
			for _, f := range do[*kmsg.ApiVersionsResponse](t, c, req).FinalizedFeatures {
				if f.Name == "transaction.version" && f.MaxVersionLevel != level {
					t.Errorf("transaction.version %d, it was formatted with %d", f.MaxVersionLevel, level)
				}
			}
		})
	}
}

// metaValue is one value of a directory's meta.properties.
func metaValue(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "meta.properties"))
	if err != nil {
		t.Fatal(err)
	}
	return word(string(data), name+"=")
}

// hashes is every name below dir with its mode, time and a hash of its content.
func hashes(t *testing.T, dir string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprint(&out, path, info.Mode(), info.ModTime())
		if !d.IsDir() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %x", sha256.Sum256(data))
		}
		fmt.Fprintln(&out)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}
