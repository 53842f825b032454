package broker

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func httpOptions(t *testing.T, log io.Writer) httpdOptions {
	t.Helper()
	reg := prometheus.NewRegistry()
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "kaja_test_total"})
	reg.MustRegister(c)
	c.Inc()
	return httpdOptions{Addr: "127.0.0.1:0", Listen: net.Listen, Gatherer: reg, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Live: func() error { return nil }, Ready: func() error { return nil }}
}

func TestHTTPPages(t *testing.T) {
	o := httpOptions(t, io.Discard)
	ready := errors.New("not ready: recovering 3 partitions")
	o.Ready = func() error { return ready }
	h, err := startHTTPD(o)
	if err != nil {
		t.Fatal(err)
	}
	get := func(method, page string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+h.Addr().String()+page, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, tt := range []struct {
		page string
		code int
		body string
	}{
		{"/livez", 200, "ok\n"},
		{"/readyz", 503, "not ready: recovering 3 partitions\n"},
		{"/healthz", 503, "not ready: recovering 3 partitions\n"},
		{"/nothing", 404, "404 page not found\n"},
	} {
		if code, body := get("GET", tt.page); code != tt.code || body != tt.body {
			t.Errorf("%s: %d %q", tt.page, code, body)
		}
	}
	ready = nil
	if code, body := get("GET", "/readyz"); code != 200 || body != "ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	if code, body := get("GET", "/metrics"); code != 200 || !strings.Contains(body, "\nkaja_test_total 1\n") {
		t.Errorf("/metrics: %d %q", code, body)
	}
	if code, body := get("GET", "/"); code != 200 || !strings.HasPrefix(body, "kaja\n") {
		t.Errorf("/: %d %q", code, body)
	}
	if code, _ := get("POST", "/metrics"); code != 405 {
		t.Errorf("POST: %d", code)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := h.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestHTTPAddressTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var log bytes.Buffer
	o := httpOptions(t, &log)
	o.Addr = taken.Addr().String()
	h, err := startHTTPD(o)
	if h != nil || err != nil || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), o.Addr) {
		t.Errorf("default taken: %v, %v, log %s", h, err, &log)
	}
	if h.Addr() != nil || h.Close(t.Context()) != nil {
		t.Error("no server is not an empty server")
	}
	o.Configured = true
	_, err = startHTTPD(o)
	if e, ok := errors.AsType[*StartError](err); !ok || !strings.HasPrefix(e.Todo, "Another process listens there") {
		t.Errorf("configured one taken: %v", err)
	}
	o.Addr = ""
	if h, err := startHTTPD(o); h != nil || err != nil {
		t.Errorf("switched off: %v, %v", h, err)
	}
}
