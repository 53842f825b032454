package target

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// clusterID is the id that Kafka's directory is formatted with.
const clusterID = "5L6g3nShT-eMCtK--X86sw"

// jvmFlags keep a broker small and quick to start.
var jvmFlags = []string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} //nolint:gochecknoglobals // constant

func addKafkaSettings(settings map[string]string, addr, controller string) {
	settings["process.roles"] = "broker,controller"
	settings["controller.quorum.bootstrap.servers"] = controller
	settings["listeners"] = "PLAINTEXT://" + addr + ",CONTROLLER://" + controller
	settings["advertised.listeners"] = settings["listeners"]
	settings["controller.listener.names"] = "CONTROLLER"
	settings["inter.broker.listener.name"] = "PLAINTEXT"
	settings["listener.security.protocol.map"] = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"
	settings["transaction.state.log.replication.factor"] = "1"
	settings["transaction.state.log.min.isr"] = "1"
	settings["share.coordinator.state.topic.replication.factor"] = "1"
	settings["share.coordinator.state.topic.min.isr"] = "1"
}

// kafkaCommand writes server.properties, formats the directory at the first start, and gives the command of the server.
func (b *Broker) kafkaCommand(ctx context.Context) (*exec.Cmd, error) {
	var text strings.Builder
	for _, k := range sortedKeys(b.settings) {
		// A value with a comma at its end or a colon needs no escape in this format; a backslash would, and none is used.
		fmt.Fprintf(&text, "%s=%s\n", k, b.settings[k])
	}
	properties := filepath.Join(b.Dir, "server.properties")
	if err := os.WriteFile(properties, []byte(text.String()), 0o644); err != nil {
		return nil, fmt.Errorf("write server.properties: %w", err)
	}
	classPath := []string{"-cp", filepath.Join(b.o.Jars, "*")}
	if _, err := os.Stat(filepath.Join(b.DataDir(), "meta.properties")); err != nil {
		args := slices.Concat(jvmFlags, classPath, []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties})
		if b.settings["controller.quorum.voters"] == "" {
			args = append(args, "--standalone")
		}
		out, err := exec.CommandContext(ctx, "java", args...).CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("format Kafka's directory: %w\n%s", err, out)
		}
	}
	return exec.Command("java", slices.Concat(jvmFlags, classPath, []string{"kafka.Kafka", properties})...), nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
