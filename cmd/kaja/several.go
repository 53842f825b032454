package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/config"
)

// tokenPrefix begins every token: what follows is base64url of JSON.
const tokenPrefix = "kaja1."

// token is what a node needs to join a cluster.
type token struct {
	Address   string `json:"a"` // host:port where a node of the cluster takes other nodes
	ClusterID string `json:"c"`
	Secret    string `json:"s,omitempty"` // "": nodes prove themselves by certificates, which no token holds
}

// String is the token as people copy it.
func (t token) String() string {
	b, err := json.Marshal(t)
	if err != nil { // strings alone
		panic("BUG: " + err.Error())
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

func parseToken(text string) (token, error) {
	var t token
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	if !ok {
		return t, errors.New("--token: that is not a token; `kaja node token` on a running node prints one")
	}
	b, err := base64.RawURLEncoding.DecodeString(rest)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err != nil || t.ClusterID == "" || t.Address == "" {
		return t, errors.New("--token: the token is cut short or damaged; copy it whole")
	}
	return t, nil
}

// joinSettings are the settings that --join and --token stand for.
func (f *startFlags) joinSettings() ([]string, error) {
	var set []string
	at := f.join
	if f.token != "" {
		t, err := parseToken(f.token)
		if err != nil {
			return nil, err
		}
		if at == "" {
			at = t.Address
		}
		set = append(set, "kaja.cluster.id="+t.ClusterID)
		if t.Secret != "" {
			set = append(set, "kaja.cluster.secret="+t.Secret)
		}
	}
	if at != "" {
		set = append(set, "controller.quorum.bootstrap.servers="+at)
	}
	return set, nil
}

// numberNode finds out the node.id of a node that joins and was given none: the one that its directory has, else the next
// that the cluster has free.
func (a *app) numberNode(ctx context.Context, f startFlags, cfg *config.Config) (startFlags, error) {
	if f.join == "" && f.token == "" {
		return f, nil
	}
	if !cfg.ProvesNodes() {
		return f, unproven(f)
	}
	if cfg.IsSet("node.id") || cfg.IsSet("broker.id") {
		return f, nil
	}
	logger, _ := newLogger(a.stderr, cfg, a.terminal)
	id, err := broker.JoinID(ctx, broker.OSEnv(logger), cfg)
	if err != nil {
		return f, err
	}
	f.set = append(slices.Clone(f.set), fmt.Sprintf("node.id=%d", id))
	return f, nil
}

// unproven refuses to join without a proof that this node may.
func unproven(f startFlags) error {
	if f.token == "" {
		return &broker.StartError{What: "join a cluster", Err: errors.New("nothing proves that this node may"),
			Todo: "Give --token as `kaja node token` prints it on a running node, or kaja.cluster.secret as the others have it."}
	}
	return &broker.StartError{What: "join a cluster", Err: errors.New("its nodes prove themselves by certificates, and this one has none"),
		Todo: "Give this node listeners and ssl.* settings as the others have them, and a certificate of its own (docs/cluster.md, \"Mutual TLS\")."}
}

// devNode makes a cluster in this process instead of one node.
func (a *app) devNode(f startFlags) newNode {
	return func(logger *slog.Logger, level *slog.LevelVar, _ *config.Config) (node, error) {
		return broker.NewDevCluster(broker.DevOptions{
			Nodes: f.devCluster,
			Env: func(int) broker.Env {
				env := broker.OSEnv(logger)
				env.LogLevel = level
				return env
			},
			Load: func(set ...string) (*config.Config, error) {
				one := f
				one.set = append(slices.Clone(f.set), set...)
				cfg, _, err := a.load(one)
				return cfg, err
			},
		})
	}
}
