package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A volume that a compose file mounts where Kafka's images keep their data takes the data, unless a setting says otherwise.
func TestVolumesOfImages(t *testing.T) {
	const home = "/h/.local/share/kaja"
	for name, tt := range map[string]struct {
		mounts, settings, want string
	}{
		"none":                        {"/ /proc /tmp", "", home},
		"bitnami":                     {"/ /bitnami", "KAFKA_CFG_NODE_ID=0", "/bitnami/kafka/data"},
		"bitnami, below":              {"/ /bitnami/kafka", "KAFKA_CFG_NODE_ID=0", "/bitnami/kafka/data"},
		"bitnami, the data":           {"/bitnami/kafka/data /", "", "/bitnami/kafka/data"},
		"bitnami, only its settings":  {"/ /bitnami/kafka/config", "", home},
		"apache without a variable":   {"/ /tmp/kraft-combined-logs", "", "/tmp/kraft-combined-logs"},
		"apache with one":             {"/ /tmp/kafka-logs", "KAFKA_NODE_ID=1", "/tmp/kafka-logs"},
		"apache, a volume of its own": {"/ /var/lib/kafka/data /tmp/kafka-logs", "KAFKA_LOG_DIRS=/var/lib/kafka/data", "/var/lib/kafka/data"},
		"bitnami, another place":      {"/ /bitnami", "KAFKA_CFG_LOG_DIR=/elsewhere", "/elsewhere"},
	} {
		c, _ := load(t, Sources{Env: append(strings.Fields(tt.settings), "HOME=/h"), Mounts: strings.Fields(tt.mounts)})
		if diff := cmp.Diff([]string{tt.want}, c.LogDirs()); diff != "" || c.MetadataDir() != tt.want {
			t.Errorf("%s: %s metadata in %s", name, diff, c.MetadataDir())
		}
	}
}

func TestMountPoints(t *testing.T) {
	const mountinfo = `22 27 0:21 / / rw,relatime - overlay overlay rw
36 35 98:0 /mnt1 /a\040b\134/ rw,noatime master:1 - ext3 /dev/root rw,errors=continue
37 22 254:0 /volumes/kafka_data/_data /bitnami rw shared:1 master:2 - ext4 /dev/vda rw

short line
38 22 0:9 / /odd\9 rw - tmpfs tmpfs rw
`
	if diff := cmp.Diff([]string{"/", `/a b\`, "/bitnami", `/odd\9`}, MountPoints([]byte(mountinfo))); diff != "" {
		t.Error(diff)
	}
	if got := MountPoints(nil); got != nil {
		t.Error(got)
	}
}
