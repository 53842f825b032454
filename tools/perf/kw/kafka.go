package kw

import (
	"fmt"
	"os/exec"
)

// KafkaFormat formats the directories that a server.properties names, with Kafka's own tool from a directory of its jars.
func KafkaFormat(jars, properties string, more ...string) error {
	args := append([]string{"-cp", jars + "/*", "kafka.tools.StorageTool", "format", "-t", "5L6g3nShT-eMCtK--X86sw", "-c", properties}, more...)
	if out, err := exec.Command("java", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w\n%s", err, out)
	}
	return nil
}

// KafkaServer is the command of a broker with the heap and collector that Kafka's own start script gives it.
func KafkaServer(jars, properties string) *exec.Cmd {
	return exec.Command("java", "-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
		"-XX:InitiatingHeapOccupancyPercent=35", "-Djava.awt.headless=true", "-cp", jars+"/*", "kafka.Kafka", properties)
}
