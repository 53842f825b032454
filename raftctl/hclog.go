package raftctl

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes hashicorp/raft's log to slog. What raft calls info is debug here: an operator reads kaja's own words
// about leadership.
type raftLogger struct {
	logger *slog.Logger
	name   string
	args   []any
	lone   bool // the only voter
}

var _ hclog.Logger = (*raftLogger)(nil)

func newRaftLogger(logger *slog.Logger, lone bool) *raftLogger {
	return &raftLogger{logger: logger.With("component", "raft"), name: "raft", lone: lone}
}

// usual is what raft warns of, or calls an error, again and again while a peer is away, starts or stops; that a peer is
// away it says with "failed to contact".
var usual = map[string]bool{
	"failed to get previous log":                 true, // the leader is ahead: it sends what is missing
	"appendEntries rejected, sending older logs": true,
	"failed to appendEntries to":                 true,
	"failed to heartbeat to":                     true,
	"failed to decode incoming command":          true, // the connection ended
	"failed to make requestVote RPC":             true,
}

func toSlog(level hclog.Level) slog.Level {
	switch level {
	case hclog.Warn:
		return slog.LevelWarn
	case hclog.Error:
		return slog.LevelError
	}
	return slog.LevelDebug
}

func (l *raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if len(args)%2 != 0 {
		args = append(args, "")
	}
	if l.lone && msg == "heartbeat timeout reached, starting election" {
		level = hclog.Debug // how a lone voter starts
	}
	if usual[msg] {
		level = hclog.Debug
	}
	if !l.enabled(toSlog(level)) {
		return
	}
	for i := 0; i < len(args); i += 2 {
		if args[i] == "error" {
			args[i] = "err"
		}
		if f, ok := args[i+1].(hclog.Format); ok && len(f) > 0 {
			args[i+1] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	l.logger.Log(context.Background(), toSlog(level), msg, args...) //nolint:sloglint // passed on
}

func (l *raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }
func (l *raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }
func (l *raftLogger) Info(msg string, args ...any)  { l.Log(hclog.Info, msg, args...) }
func (l *raftLogger) Warn(msg string, args ...any)  { l.Log(hclog.Warn, msg, args...) }
func (l *raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l *raftLogger) enabled(level slog.Level) bool {
	return l.logger.Enabled(context.Background(), level)
}
func (l *raftLogger) IsTrace() bool { return false }
func (l *raftLogger) IsDebug() bool { return l.enabled(slog.LevelDebug) }
func (l *raftLogger) IsInfo() bool  { return l.enabled(slog.LevelDebug) }
func (l *raftLogger) IsWarn() bool  { return l.enabled(slog.LevelWarn) }
func (l *raftLogger) IsError() bool { return l.enabled(slog.LevelError) }

func (l *raftLogger) ImpliedArgs() []any { return l.args }

func (l *raftLogger) With(args ...any) hclog.Logger {
	return &raftLogger{logger: l.logger.With(args...), name: l.name, lone: l.lone, args: append(l.args[:len(l.args):len(l.args)], args...)}
}

func (l *raftLogger) Name() string                   { return l.name }
func (l *raftLogger) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }
func (l *raftLogger) ResetNamed(name string) hclog.Logger {
	return &raftLogger{logger: l.logger, name: name, args: l.args, lone: l.lone}
}

func (*raftLogger) SetLevel(hclog.Level)  {}
func (*raftLogger) GetLevel() hclog.Level { return hclog.Debug }

func (l *raftLogger) StandardLogger(o *hclog.StandardLoggerOptions) *stdlog.Logger {
	return stdlog.New(l.StandardWriter(o), "", 0)
}

func (l *raftLogger) StandardWriter(*hclog.StandardLoggerOptions) io.Writer {
	return slog.NewLogLogger(l.logger.Handler(), slog.LevelDebug).Writer()
}
