// Package clients knows where the installer (compat-tests/install/install.sh) put the foreign clients.
package clients

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Set is the directory that the installer filled.
type Set struct {
	Cache string
}

// Default is the set in $KAJA_COMPAT_CACHE, or else below the user's cache directory; the installer's own rule.
func Default() (Set, error) {
	if dir := os.Getenv("KAJA_COMPAT_CACHE"); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Set{}, fmt.Errorf("resolve KAJA_COMPAT_CACHE: %w", err)
		}
		return Set{Cache: abs}, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Set{}, fmt.Errorf("find the cache directory: %w", err)
	}
	return Set{Cache: filepath.Join(dir, "kaja-compat")}, nil
}

// Check returns nil if the named client (a name of install.sh) is installed, else an error that says why not.
func (s Set) Check(name string) error {
	if reason, err := os.ReadFile(filepath.Join(s.Cache, name+".failed")); err == nil {
		return errors.New(strings.TrimSpace(string(reason)))
	}
	command := map[string]string{"kcat": "kcat", "python": s.Python(), "node": "node", "java": "java", "javaclients": "java", "connect": "java", "spring": "java", "rsyslog": "/usr/sbin/rsyslogd",
		"telegraf": s.Built("telegraf"), "otelcol": s.Built("otelcol"),
		"suites": s.Suite("toxiproxy"), "goclients": s.GoProgram("franz"), "rdkafka": s.Rdkafka(), "confluentjs": "node"}[name]
	if command == "" {
		return fmt.Errorf("unknown client %q", name)
	}
	if _, err := exec.LookPath(command); err != nil {
		return fmt.Errorf("%s is not installed (run compat-tests/install/install.sh): %w", name, err)
	}
	if name == "kcat" || name == "rsyslog" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(s.Cache, name+".stamp")); err != nil {
		return fmt.Errorf("%s is not installed (run compat-tests/install/install.sh): %w", name, err)
	}
	return nil
}

// Built is a program that the installer built from its sources.
func (s Set) Built(name string) string { return filepath.Join(s.Cache, "built", name) }

// Suite is a program of the suites of other projects. The directory where a suite expects to run is in the file of its name and ".dir".
func (s Set) Suite(name string) string { return filepath.Join(s.Cache, "suites", "bin", name) }

// Python is the interpreter that has the Kafka packages.
func (s Set) Python() string { return filepath.Join(s.Cache, "python", "bin", "python") }

// NodePath is the directory of the JavaScript packages.
func (s Set) NodePath() string { return filepath.Join(s.Cache, "node", "node_modules") }

// Jars is the directory of Kafka's jars.
func (s Set) Jars() string { return filepath.Join(s.Cache, "java", "lib") }

// JavaRunner is the directory of the compiled ToolRunner.
func (s Set) JavaRunner() string { return filepath.Join(s.Cache, "java", "runner") }

// JavaClient is the directory of one release of kafka-clients, with ClientScenario compiled against it.
func (s Set) JavaClient(version string) string { return filepath.Join(s.Cache, "javaclients", version) }

// Connect is the directory of the jars of Kafka Connect and MirrorMaker 2.
func (s Set) Connect() string { return filepath.Join(s.Cache, "connect", "lib") }

// ConnectPlugins is the plugin path of Kafka Connect: its file connectors.
func (s Set) ConnectPlugins() string { return filepath.Join(s.Cache, "connect", "plugins") }

// Spring is the directory of Spring Kafka's jars, with SpringScenario compiled against them.
func (s Set) Spring() string { return filepath.Join(s.Cache, "spring") }

// GoProgram is a Go program of the client matrix.
func (s Set) GoProgram(name string) string { return filepath.Join(s.Cache, "goclients", name) }

// Rdkafka is the Rust program of the client matrix.
func (s Set) Rdkafka() string { return filepath.Join(s.Cache, "rdkafka", "release", "rdkafka-client") }

// ConfluentJS is the directory of @confluentinc/kafka-javascript.
func (s Set) ConfluentJS() string { return filepath.Join(s.Cache, "confluentjs", "node_modules") }
