package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/vfs"
	"github.com/kajamq/kaja/vfs/faultfs"
	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/prometheus/client_golang/prometheus"
)

// startOnce starts a node and closes it again, whatever came of the start.
func startOnce(t *testing.T, fs vfs.FS) (clusterID string, startErr, closeErr error) {
	t.Helper()
	env := OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed = fs, 1
	reg := prometheus.NewRegistry()
	env.Registerer, env.Gatherer = reg, reg
	b, err := New(env, testConfig(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	startErr = b.Start(t.Context())
	if b.identity != nil {
		clusterID = b.identity.ClusterID
	}
	return clusterID, startErr, b.Close(context.Background())
}

// mustStart starts a node on what an interrupted first start left; it must come up without help and belong to the cluster
// that the directory names.
func mustStart(t *testing.T, fs vfs.FS, what string) {
	t.Helper()
	m, err := readMeta(fs, "/data")
	if err != nil {
		t.Fatalf("%s: half an identity: %v", what, err)
	}
	id, startErr, closeErr := startOnce(t, fs)
	if err := errors.Join(startErr, closeErr); err != nil {
		t.Fatalf("%s: the next start: %v", what, err)
	}
	if m != nil && m.clusterID != id {
		t.Errorf("%s: the directory is of cluster %s, the node of %s", what, m.clusterID, id)
	}
}

// A first start that ends at any of its calls that change the disk (by SIGKILL, by a power loss, or because the disk is full
// from there on) leaves a directory on which the next start works. A full disk is told as such, with what to do.
func TestFirstStartThatEndsAnywhere(t *testing.T) {
	for n := 1; ; n++ {
		mem := newMem()
		fs := faultfs.New(mem)
		calls, end := 0, ""
		var left []*memfs.FS
		fs.Before(func(op faultfs.Op, name string) {
			if calls++; calls == n {
				end = string(op) + " " + name
				left = append(left, mem.Crash(memfs.Keep, 1), mem.Crash(memfs.Lose, 1), mem.Crash(memfs.Coin, uint64(n)))
			}
		})
		if _, startErr, closeErr := startOnce(t, fs); startErr != nil || closeErr != nil {
			t.Fatal(startErr, closeErr)
		}
		if calls < n {
			if n < 60 {
				t.Errorf("only %d calls changed the disk", calls)
			}
			break
		}
		for i, after := range left {
			mustStart(t, after, fmt.Sprintf("crash before call %d, %s, fate %d", n, end, i))
		}
	}
	for n := 1; ; n++ {
		mem := newMem()
		fs := faultfs.New(mem)
		write := fs.Add(faultfs.Rule{Op: faultfs.OpWrite, Nth: n, Err: syscall.ENOSPC})
		_, startErr, closeErr := startOnce(t, fs)
		if write.Hits() == 0 {
			if n < 15 {
				t.Errorf("only %d writes were tried", n)
			}
			break
		}
		fs.Clear()
		if startErr != nil {
			e, ok := errors.AsType[*StartError](startErr)
			if !ok || !errors.Is(startErr, syscall.ENOSPC) || !strings.HasPrefix(e.Todo, "Free some space on the disk of /data") {
				t.Errorf("write %d: %v (%+v)", n, startErr, e)
			}
		} else if closeErr != nil && !errors.Is(closeErr, syscall.ENOSPC) {
			t.Errorf("write %d: close: %v", n, closeErr)
		}
		for i, fate := range []memfs.Fate{memfs.Keep, memfs.Lose, memfs.Coin} {
			mustStart(t, mem.Crash(fate, uint64(n)), fmt.Sprintf("disk full from write %d on, fate %d", n, i))
		}
	}
}

// The line that a node of several asks for fits where it was told of the others: a file, or a container's environment.
func TestMissingSecretIsShown(t *testing.T) {
	const voters = "1@a:9093,2@b:9093"
	for _, tt := range []struct {
		sources config.Sources
		want    string
	}{
		{config.Sources{FileName: "f", File: []byte("controller.quorum.voters=" + voters)}, "to the configuration of every node, the same on all of them: kaja.cluster.secret="},
		{config.Sources{Env: []string{"KAFKA_CONTROLLER_QUORUM_VOTERS=" + voters}}, "to the environment of every node, the same on all of them: KAJA_CLUSTER_SECRET="},
		{config.Sources{Env: []string{"KAFKA_CFG_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS=a:9093"}}, "to the environment of every node, the same on all of them: KAJA_CLUSTER_SECRET="},
	} {
		tt.sources.Env = append(tt.sources.Env, "HOME=/home/k")
		tt.sources.Set = []string{"node.id=1", "process.roles=broker,controller", "listeners=PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names=CONTROLLER"}
		cfg, _, err := config.Load(tt.sources)
		if err != nil {
			t.Fatal(err)
		}
		if got := secretError(newIDs(1), cfg).Todo; !strings.Contains(got, tt.want) {
			t.Errorf("%q, want %q in it", got, tt.want)
		}
	}
}
