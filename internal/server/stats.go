package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Summaries provides the data of /stats/summary.
type Summaries interface {
	Summary(ctx context.Context, onlyCPUAndMemory bool, maxAge time.Duration) (*statsapi.Summary, error)
}

// summaryAge is the maximum age of a summary that is served: requests within this time share one summary.
const summaryAge = time.Second

// Summary serves /stats/summary: resource usage of pods and the node, or only CPU and memory (only_cpu_and_memory).
func Summary(log logr.Logger, from Summaries) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		only := false
		if text := r.FormValue("only_cpu_and_memory"); text != "" {
			var err error
			if only, err = strconv.ParseBool(text); err != nil {
				http.Error(w, fmt.Sprintf("the parameter only_cpu_and_memory is %q: it can be true or false", text),
					http.StatusBadRequest)
				return
			}
		}
		summary, err := from.Summary(r.Context(), only, summaryAge)
		if err != nil {
			log.Error(err, "Request failed", "path", r.URL.Path)
			http.Error(w, "failed to get node stats: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(summary); err != nil {
			log.V(4).Info("Answer not delivered", "path", r.URL.Path, "err", err)
		}
	})
}
