package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func (r *role) serveHTTP(ctx context.Context) error {
	if r.web == "" {
		return nil
	}
	answer := func(w http.ResponseWriter, _ *http.Request) {
		if !r.isWell() {
			http.Error(w, errSick.Error(), http.StatusServiceUnavailable)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", answer)
	mux.HandleFunc("GET /guarded", func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Ship") != "deckhand" {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		answer(w, q)
	})
	mux.HandleFunc("GET /append", func(w http.ResponseWriter, q *http.Request) {
		if err := r.diary.add(q.URL.RawQuery); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Addr: r.web, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveTCP listens while it is well.
func (r *role) serveTCP(ctx context.Context) error {
	if r.tcp == "" {
		return nil
	}
	var listener net.Listener
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		well := r.isWell() && ctx.Err() == nil
		switch {
		case well && listener == nil:
			var err error
			if listener, err = net.Listen("tcp", r.tcp); err != nil {
				return err
			}
		case !well && listener != nil:
			if err := listener.Close(); err != nil {
				return err
			}
			listener = nil
		}
		select {
		case <-ctx.Done():
			if listener == nil {
				return nil
			}
		case <-tick.C:
		}
	}
}

func (r *role) serveGRPC(ctx context.Context) error {
	if r.rpc == "" {
		return nil
	}
	listener, err := net.Listen("tcp", r.rpc)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	health.RegisterHealthServer(server, &healthService{well: r.isWell})
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}

// healthService answers for the service "ship" and for the server as a whole.
type healthService struct {
	health.UnimplementedHealthServer
	well func() bool
}

// Check implements the gRPC health protocol.
func (s *healthService) Check(_ context.Context, q *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if name := q.GetService(); name != "" && name != "ship" {
		return nil, status.Errorf(codes.NotFound, "no service %q", name)
	}
	if !s.well() {
		return &health.HealthCheckResponse{Status: health.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}
