package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds of the HTTP server: its clients are scrapers and probes, so nothing takes long.
const (
	httpHeaderTimeout  = 5 * time.Second
	httpRequestTimeout = 30 * time.Second
	httpIdleTimeout    = 2 * time.Minute
	httpMaxHeaderBytes = 16 << 10
	httpMaxScrapes     = 4 // at once; one more is answered 503
)

// httpdOptions is what startHTTPD needs.
type httpdOptions struct {
	// Addr is kaja.http.listener as host:port. Configured: somebody asked for it, so failing to bind is an error.
	Addr       string
	Configured bool
	Listen     func(network, addr string) (net.Listener, error)
	Gatherer   prometheus.Gatherer
	Logger     *slog.Logger
	// Live and Ready give nil, or what is wrong. They must not block and are called concurrently.
	Live, Ready func() error
}

// httpd serves /metrics and the health pages. Its goroutines are one that accepts and one per connection; Close ends
// and joins them.
type httpd struct {
	addr   net.Addr
	server *http.Server
	wg     sync.WaitGroup
}

// startHTTPD binds and serves. It gives nil without an error if Addr is empty, or if it was not configured and cannot
// be bound: then a warning is logged. Errors are *StartError.
func startHTTPD(o httpdOptions) (*httpd, error) {
	if o.Addr == "" {
		return nil, nil
	}
	l, err := o.Listen("tcp", o.Addr)
	if err != nil && !o.Configured {
		o.Logger.Warn("no metrics and health page: the default address cannot be bound; set kaja.http.listener to another one, or to nothing",
			slog.String("address", o.Addr), slog.Any("err", err))
		return nil, nil
	}
	if err != nil {
		todo := "Correct the setting kaja.http.listener; empty switches the page off."
		if errors.Is(err, syscall.EADDRINUSE) {
			todo = "Another process listens there: choose another address for kaja.http.listener; empty switches the page off."
		}
		return nil, &StartError{What: "open the HTTP listener on " + o.Addr, Err: err, Todo: todo}
	}
	h := &httpd{addr: l.Addr(), server: &http.Server{
		Handler:           httpRoutes(o),
		ReadHeaderTimeout: httpHeaderTimeout,
		ReadTimeout:       httpRequestTimeout,
		WriteTimeout:      httpRequestTimeout,
		IdleTimeout:       httpIdleTimeout,
		MaxHeaderBytes:    httpMaxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}}
	h.wg.Go(func() {
		if err := h.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("metrics and health page ended", slog.Any("err", err))
		}
	})
	return h, nil
}

// httpRoutes is the pages. All answer GET and HEAD only.
func httpRoutes(o httpdOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		ErrorLog:            gatherErrors{o.Logger},
		MaxRequestsInFlight: httpMaxScrapes,
	}))
	mux.Handle("GET /livez", healthPage(o.Live))
	mux.Handle("GET /readyz", healthPage(o.Ready))
	mux.Handle("GET /healthz", healthPage(o.Ready))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, http.StatusOK, "kaja\n\n/metrics  Prometheus metrics\n/livez    200 while the process works\n/readyz   200 while it serves clients; /healthz is the same\n")
	})
	return mux
}

// healthPage answers 200 ok, or 503 and what is wrong.
func healthPage(check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if err := check(); err != nil {
			writeText(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		writeText(w, http.StatusOK, "ok\n")
	})
}

func writeText(w http.ResponseWriter, code int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body) // the client may have gone
}

// gatherErrors takes what promhttp has to say.
type gatherErrors struct{ logger *slog.Logger }

func (g gatherErrors) Println(v ...any) {
	g.logger.Warn("metrics are incomplete", slog.String("err", fmt.Sprint(v...)))
}

// Addr is where the pages are, nil if they are off.
func (h *httpd) Addr() net.Addr {
	if h == nil {
		return nil
	}
	return h.addr
}

// Close waits for requests under way until ctx is done, then cuts them off. It may be called on nil.
func (h *httpd) Close(ctx context.Context) error {
	if h == nil {
		return nil
	}
	err := h.server.Shutdown(ctx)
	if err != nil {
		err = h.server.Close()
	}
	h.wg.Wait()
	if err != nil {
		return fmt.Errorf("close the HTTP listener: %w", err)
	}
	return nil
}
