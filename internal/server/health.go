package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// checkTimeout bounds all checks of one request.
const checkTimeout = 5 * time.Second

// Check is one condition of the agent's health.
type Check struct {
	// Name is the last part of the path /healthz/NAME.
	Name string
	// Func returns nil if the check passes, or the reason why it fails. It must return when its context ends, and may
	// be called concurrently.
	Func func(context.Context) error
}

// Health serves /healthz and /healthz/NAME: "ok" if all checks (or the named one) pass, otherwise status 500 with all
// checks and the reasons of the failed ones. With ?verbose all checks are listed in either case.
func Health(checks ...Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		serveChecks(w, r, "healthz", checks)
	})
	for _, c := range checks {
		mux.HandleFunc("GET /healthz/"+c.Name, func(w http.ResponseWriter, r *http.Request) {
			serveChecks(w, r, c.Name, []Check{c})
		})
	}
	return mux
}

func serveChecks(w http.ResponseWriter, r *http.Request, name string, checks []Check) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
	defer cancel()
	var report strings.Builder
	failed := false
	for _, c := range checks {
		if err := c.Func(ctx); err != nil {
			failed = true
			fmt.Fprintf(&report, "[-]%s failed: %s\n", c.Name, terminal.Line(err.Error()))
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", c.Name)
	}
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	switch {
	case failed:
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", &report, name)
	case r.URL.Query().Has("verbose"):
		fmt.Fprintf(w, "%s%s check passed\n", &report, name)
	default:
		fmt.Fprint(w, "ok")
	}
}
