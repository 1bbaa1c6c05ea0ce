package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/server"
)

func ask(h http.Handler, method, target string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(method, target, nil))
	return rec
}

func TestHealth(t *testing.T) {
	well := server.Check{Name: "syncloop", Func: func(context.Context) error { return nil }}
	ill := server.Check{Name: "runtime", Func: func(context.Context) error { return errors.New("no answer for 3m") }}
	for _, tc := range []struct {
		name   string
		checks []server.Check
		target string
		status int
		body   string
	}{
		{"all well", []server.Check{well, well2()}, "/healthz", 200, "ok"},
		{"verbose", []server.Check{well, well2()}, "/healthz?verbose", 200, "[+]syncloop ok\n[+]ping ok\nhealthz check passed\n"},
		{"one failed", []server.Check{well, ill}, "/healthz", 500, "[+]syncloop ok\n[-]runtime failed: no answer for 3m\nhealthz check failed\n"},
		{"one that would look like another", []server.Check{{Name: "runtime", Func: func(context.Context) error { return errors.New("no answer\n[+]runtime ok\x1b[2J") }}}, "/healthz", 500, "[-]runtime failed: no answer [+]runtime ok\uFFFD[2J\nhealthz check failed\n"},
		{"a good one of them", []server.Check{well, ill}, "/healthz/syncloop", 200, "ok"},
		{"the bad one of them", []server.Check{well, ill}, "/healthz/runtime", 500, "[-]runtime failed: no answer for 3m\nruntime check failed\n"},
		{"no such check", []server.Check{well}, "/healthz/none", 404, "404 page not found\n"},
		{"no checks", nil, "/healthz", 200, "ok"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := ask(server.Health(tc.checks...), http.MethodGet, tc.target)
			if rec.Code != tc.status || rec.Body.String() != tc.body {
				t.Errorf("got %d %q, want %d %q", rec.Code, rec.Body, tc.status, tc.body)
			}
		})
	}
}

func well2() server.Check {
	return server.Check{Name: "ping", Func: func(context.Context) error { return nil }}
}

// A check that hangs fails the request instead of keeping it.
func TestHealthIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := server.Health(server.Check{Name: "slow", Func: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		begin := time.Now()
		if rec := ask(h, http.MethodGet, "/healthz"); rec.Code != http.StatusInternalServerError {
			t.Errorf("status %d", rec.Code)
		}
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("answered after %v, want 5s", d)
		}
	})
}

func TestHealthTakesOnlyReads(t *testing.T) {
	h := server.Health(well2())
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "DELETE": 405} {
		for _, target := range []string{"/healthz", "/healthz/ping"} {
			if rec := ask(h, method, target); rec.Code != want {
				t.Errorf("%s %s: status %d, want %d", method, target, rec.Code, want)
			}
		}
	}
}
