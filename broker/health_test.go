package broker

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/kajamq/kaja/vfs/memfs"
	"github.com/prometheus/client_golang/prometheus"
)

// The health pages are there before the rest of the node is: a probe may ask at any moment of the start. (The race
// detector is what makes this test fail.)
func TestHealthPagesDuringTheStart(t *testing.T) {
	env := OSEnv(slog.New(slog.DiscardHandler))
	env.FS, env.Seed, env.Registerer = memfs.New(time.Now), 1, prometheus.NewRegistry()
	bound := make(chan string, 2)
	env.Listen = func(network, addr string) (net.Listener, error) {
		l, err := net.Listen(network, addr)
		if err == nil {
			bound <- l.Addr().String()
		}
		return l, err
	}
	b, err := New(env, testConfig(t, map[string]string{"kaja.http.listener": "127.0.0.1:0"}))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		<-bound // of the clients
		page := "http://" + <-bound + "/readyz"
		for {
			resp, err := http.Get(page)
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || resp.StatusCode == http.StatusOK {
				return
			}
			if resp.StatusCode != http.StatusServiceUnavailable || string(body) != "starting or stopping\n" {
				t.Errorf("before the node is ready: %s %q", resp.Status, body)
				return
			}
		}
	})
	err = b.Start(t.Context())
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
