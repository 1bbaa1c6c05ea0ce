package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync/atomic"
	"time"
)

// site is what the server knows about itself.
type site struct {
	host     string
	started  time.Time
	requests atomic.Int64
	// sick makes /healthz fail; a POST to /sick and /well turns it on and off.
	sick atomic.Bool
}

// serve answers HTTP until ctx ends, then lets requests under way finish.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", ":8080", "address to listen on")
	delay := flags.Duration("delay", 0, "wait before listening, as a slow starter would")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !wait(ctx, *delay) {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	s := &site{host: host, started: time.Now()}
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("%s listens on %s\n", host, l.Addr())
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	fmt.Println("stopping")
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(grace)
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}

func (s *site) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.sick.Load() {
			http.Error(w, "sick", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("POST /sick", func(http.ResponseWriter, *http.Request) { s.sick.Store(true) })
	mux.HandleFunc("POST /well", func(http.ResponseWriter, *http.Request) { s.sick.Store(false) })
	mux.HandleFunc("GET /env", func(w http.ResponseWriter, _ *http.Request) {
		vars := os.Environ()
		sort.Strings(vars)
		fmt.Fprintln(w, strings.Join(vars, "\n"))
	})
	mux.HandleFunc("GET /", s.front)
	if dir := os.Getenv("WEB_FILES"); dir != "" {
		mux.Handle("GET /files/", http.StripPrefix("/files/", http.FileServer(http.Dir(filepath.Clean(dir)))))
	}
	return mux
}

// front says who answers: enough to see that the right pod does.
func (s *site) front(w http.ResponseWriter, r *http.Request) {
	n := s.requests.Add(1)
	if greeting := os.Getenv("GREETING"); greeting != "" {
		fmt.Fprintln(w, greeting)
	}
	fmt.Fprintf(w, "pod:      %s\n", s.host)
	fmt.Fprintf(w, "path:     %s\n", r.URL.Path)
	fmt.Fprintf(w, "client:   %s\n", r.RemoteAddr)
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		fmt.Fprintf(w, "server:   %s\n", local)
	}
	fmt.Fprintf(w, "requests: %d in %s\n", n, time.Since(s.started).Round(time.Second))
}
