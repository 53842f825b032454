package main

import (
	"log/slog"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// newBroker makes a broker of the real world.
func newBroker(logger *slog.Logger, level *slog.LevelVar, cfg *config.Config) (node, error) {
	env := broker.OSEnv(logger)
	env.LogLevel = level
	return broker.New(env, cfg)
}
