package local

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
)

func TestOnlyRootAndTheAgentsUserAreServed(t *testing.T) {
	server := &Server{log: logr.Discard(), ownUID: 1000}
	handler := server.authorize(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for name, tc := range map[string]struct {
		peer any
		want int
	}{
		"root":       {uint32(0), http.StatusOK},
		"own user":   {uint32(1000), http.StatusOK},
		"other user": {uint32(1001), http.StatusForbidden},
		"unknown":    {errors.New("no credentials"), http.StatusForbidden},
		"nothing":    {nil, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, tc.peer), http.MethodGet, "/v1/snapshot", nil)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			if recorder.Code != tc.want {
				t.Errorf("status %d, want %d", recorder.Code, tc.want)
			}
			if tc.want == http.StatusForbidden && !strings.Contains(recorder.Body.String(), `{"message":`) {
				t.Errorf("body %q says nothing", recorder.Body)
			}
		})
	}
}
