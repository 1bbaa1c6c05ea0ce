package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/server"
)

type summaries func(only bool) (*statsapi.Summary, error)

func (s summaries) Summary(_ context.Context, only bool, maxAge time.Duration) (*statsapi.Summary, error) {
	if maxAge <= 0 || maxAge > 10*time.Second {
		return nil, errors.New("an age that isn't a kubelet's")
	}
	return s(only)
}

func TestSummary(t *testing.T) {
	for query, want := range map[string]string{"": "200 all", "?only_cpu_and_memory=true": "200 only", "?only_cpu_and_memory=false": "200 all",
		"?only_cpu_and_memory=maybe": `400 the parameter only_cpu_and_memory is "maybe"`} {
		w := httptest.NewRecorder()
		server.Summary(logr.Discard(), summaries(func(only bool) (*statsapi.Summary, error) {
			name := "all"
			if only {
				name = "only"
			}
			return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: name}, Pods: []statsapi.PodStats{}}, nil
		})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats/summary"+query, nil))
		code, text, _ := strings.Cut(want, " ")
		if got := w.Body.String(); http.StatusText(w.Code) == "" || !strings.HasPrefix(want, code) || w.Code/100 != int(code[0]-'0') || !strings.Contains(got, text) {
			t.Errorf("%q: %d %s, want %s", query, w.Code, got, want)
		}
	}
	w := httptest.NewRecorder()
	server.Summary(logr.Discard(), summaries(func(bool) (*statsapi.Summary, error) { return nil, errors.New("no control groups") })).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats/summary", nil))
	if w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "no control groups") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
