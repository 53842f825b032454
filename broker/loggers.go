package broker

import (
	"log/slog"
)

// levelLogger is the one logger that a node has, under the name of Kafka's root logger.
type levelLogger struct{ level *slog.LevelVar }

// Levels of log4j that slog has no name for.
const (
	levelTrace = slog.LevelDebug - 4
	levelFatal = slog.LevelError + 4
)

var log4jLevels = []struct {
	level slog.Level
	name  string
}{
	{levelTrace, "TRACE"}, {slog.LevelDebug, "DEBUG"}, {slog.LevelInfo, "INFO"}, {slog.LevelWarn, "WARN"}, {slog.LevelError, "ERROR"}, {levelFatal, "FATAL"},
}

// Names implements api.Loggers.
func (levelLogger) Names() []string { return []string{"root"} }

// Level implements api.Loggers.
func (l levelLogger) Level(name string) (string, bool) {
	text := ""
	for _, x := range log4jLevels {
		if l.level.Level() >= x.level {
			text = x.name
		}
	}
	return text, name == "root"
}

// SetLevel implements api.Loggers.
func (l levelLogger) SetLevel(_, level string) {
	for _, x := range log4jLevels {
		if x.name == level {
			l.level.Set(x.level)
		}
	}
}
