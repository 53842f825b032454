package config

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// volumes are the places where Kafka and the images of it keep their data when nothing says where, and where compose files therefore
// mount a volume: bitnami's, /tmp/kraft-combined-logs of the apache/kafka image's own file of settings, and Kafka's own default, which
// is what that image has once it is given any variable.
var volumes = []struct{ mounted, data string }{
	{"/bitnami/kafka/data", "/bitnami/kafka/data"},
	{"/bitnami/kafka", "/bitnami/kafka/data"},
	{"/bitnami", "/bitnami/kafka/data"},
	{"/tmp/kafka-logs", "/tmp/kafka-logs"},
	{"/tmp/kraft-combined-logs", "/tmp/kraft-combined-logs"},
}

// volume is the directory of data on a volume that is mounted for an image of Kafka; "" if none is.
func volume(mounts []string) string {
	for _, v := range volumes {
		if slices.Contains(mounts, v.mounted) {
			return v.data
		}
	}
	return ""
}

// MountPoints are those that Linux's /proc/self/mountinfo names, in its order.
func MountPoints(mountinfo []byte) []string {
	var out []string
	for line := range strings.Lines(string(mountinfo)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			out = append(out, path.Clean(unescaped(fields[4])))
		}
	}
	return out
}

// unescaped undoes \040 and its like, by which the kernel writes white space.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
