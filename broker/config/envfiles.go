package config

import (
	"fmt"
	"slices"
	"strings"
)

// fileVariables are those that may be given as a file, by the name with _FILE behind it: of bitnami's image the one that is about
// something kaja has, and by the same rule kaja's own secret.
var fileVariables = []string{"KAFKA_KRAFT_CLUSTER_ID", "KAJA_CLUSTER_SECRET"}

// FromFiles replaces NAME_FILE=path in an environment by NAME and what the file holds, less the line ends behind it. The file wins over
// a NAME that is there as well. A file that cannot be read is an error: without it the node would be another one.
func FromFiles(env []string, readFile func(name string) ([]byte, error)) ([]string, error) {
	out := slices.Clone(env)
	for _, name := range fileVariables {
		i := slices.IndexFunc(out, func(entry string) bool { return strings.HasPrefix(entry, name+"_FILE=") })
		if i < 0 || out[i] == name+"_FILE=" {
			continue
		}
		path := out[i][len(name+"_FILE="):]
		data, err := readFile(path)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s_FILE: %w", name, err)
		}
		out = slices.DeleteFunc(out, func(entry string) bool {
			return strings.HasPrefix(entry, name+"=") || strings.HasPrefix(entry, name+"_FILE=")
		})
		out = append(out, name+"="+strings.TrimRight(string(data), "\r\n"))
	}
	return out, nil
}
