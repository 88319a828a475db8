package node

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the admin pages: they are small, and a slow or silent peer must cost
// only its own connection.
const (
	adminHeaderTimeout = 5 * time.Second
	adminReadTimeout   = 10 * time.Second
	adminWriteTimeout  = 60 * time.Second // a CPU profile takes 30 s by default
	adminIdleTimeout   = 60 * time.Second
	adminMaxHeader     = 16 << 10
	adminReadyTimeout  = 2 * time.Second // /readyz answers by then, whatever its groups do
)

// Readiness is the body of /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Node    string   `json:"node"`
	Cluster string   `json:"cluster,omitempty"`
	Epoch   uint64   `json:"epoch"`
	Groups  int      `json:"groups"`
	Leaders int      `json:"leaders"`
	Reasons []string `json:"reasons,omitempty"`
}

// adminPages are what the HTTP port serves.
type adminPages struct {
	ready    func(context.Context) Readiness
	registry *prometheus.Registry
	pprof    bool
}

func (a adminPages) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("alive\n")) // a peer that has gone needs no answer
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), adminReadyTimeout)
		defer cancel()
		state := a.ready(ctx)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !state.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(state) // as above
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	if a.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// adminServer serves the admin pages until Close, which joins its goroutine and
// the requests in flight.
type adminServer struct {
	server   *http.Server
	done     chan struct{}
	requests sync.WaitGroup
}

func serveAdmin(l net.Listener, pages adminPages, log *slog.Logger) *adminServer {
	s := &adminServer{done: make(chan struct{})}
	pagesHandler := pages.handler()
	s.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.requests.Add(1)
			defer s.requests.Done()
			pagesHandler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: adminHeaderTimeout,
		ReadTimeout:       adminReadTimeout,
		WriteTimeout:      adminWriteTimeout,
		IdleTimeout:       adminIdleTimeout,
		MaxHeaderBytes:    adminMaxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the admin pages stopped", "err", err)
		}
	}()
	return s
}

// Close ends the listener and every connection, which ends their requests.
func (s *adminServer) Close() error {
	err := s.server.Close()
	<-s.done
	s.requests.Wait()
	return err
}
