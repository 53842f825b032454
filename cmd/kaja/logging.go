package main

import (
	"io"
	"log/slog"
	"strings"

	"github.com/lmittmann/tint"

	"github.com/kajamq/kaja/broker/config"
)

// timeFormat is that of log lines for people: to the millisecond, sortable, with the zone.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// newLogger logs to w as the settings say; the level can be altered while the node runs.
func newLogger(w io.Writer, cfg *config.Config, terminal bool) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	switch strings.ToLower(cfg.String("kaja.log.level")) {
	case "debug":
		level.Set(slog.LevelDebug)
	case "warn":
		level.Set(slog.LevelWarn)
	case "error":
		level.Set(slog.LevelError)
	}
	if cfg.String("kaja.log.format") == config.LogJSON {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), level
	}
	colours := terminal && cfg.String("kaja.log.format") == config.LogAuto
	return slog.New(tint.NewTextHandler(w, &tint.Options{Level: level, TimeFormat: timeFormat, NoColor: !colours})), level
}
