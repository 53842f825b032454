package api

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kajamq/kaja/raftctl"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Loggers are the loggers of this node whose levels can be altered while it runs. They live as long as the process: no
// level is kept in the metadata, as in Kafka.
type Loggers interface {
	// Names lists them, sorted.
	Names() []string
	// Level is a logger's level, one of Kafka's words; false if there is no such logger.
	Level(name string) (string, bool)
	// SetLevel sets the level of a logger that exists to one of Kafka's words, at once.
	SetLevel(name, level string)
}

// rootLogger is the logger that all others take their level from.
const rootLogger = "root"

// logLevels is Kafka's words for levels, in the order in which it tells them.
var logLevels = []string{"DEBUG", "ERROR", "FATAL", "INFO", "TRACE", "WARN"}

// alterLoggers checks all changes of one request and then makes them (Kafka: ConfigAdminManager.validateLogLevelConfigs).
func alterLoggers(loggers Loggers, changes []raftctl.ConfigChange, validateOnly bool) *raftctl.Error {
	invalid := func(code *kerr.Error, text string) *raftctl.Error { return &raftctl.Error{Code: code, Message: text} }
	for _, ch := range changes {
		if ch.Op == raftctl.ConfigAppend || ch.Op == raftctl.ConfigSubtract {
			word := map[raftctl.ConfigOp]string{raftctl.ConfigAppend: "APPEND", raftctl.ConfigSubtract: "SUBTRACT"}[ch.Op]
			return invalid(kerr.InvalidRequest, word+" operation is not allowed for the BROKER_LOGGER resource")
		}
		if _, ok := loggers.Level(ch.Name); !ok {
			return invalid(kerr.InvalidConfig, "Logger "+ch.Name+" does not exist!")
		}
		switch ch.Op {
		case raftctl.ConfigSet:
			if !slices.Contains(logLevels, *ch.Value) {
				return invalid(kerr.InvalidConfig, "Cannot set the log level of "+ch.Name+" to "+*ch.Value+
					" as it is not a supported log level. Valid log levels are "+strings.Join(logLevels, ", "))
			}
		case raftctl.ConfigDelete:
			if ch.Name == rootLogger {
				return invalid(kerr.InvalidRequest, "Removing the log level of the "+rootLogger+" logger is not allowed")
			}
		default:
			return invalid(kerr.InvalidRequest, fmt.Sprintf("Unknown operation type %d is not allowed for the BROKER_LOGGER resource", ch.Op))
		}
	}
	if validateOnly {
		return nil
	}
	for _, ch := range changes {
		level := ""
		if ch.Op == raftctl.ConfigSet {
			level = *ch.Value
		} else {
			level, _ = loggers.Level(rootLogger)
		}
		loggers.SetLevel(ch.Name, level)
	}
	return nil
}
