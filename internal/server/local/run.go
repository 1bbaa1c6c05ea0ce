package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxManifest is the maximum size of a manifest in bytes, the same as for manifest files.
const maxManifest = 10 << 20

// run runs the pods of a manifest until the client leaves.
func (s *Server) run(w http.ResponseWriter, r *http.Request) error {
	manifest, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxManifest))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return &StatusError{http.StatusRequestEntityTooLarge,
				fmt.Errorf("the manifest is larger than %d MiB", maxManifest>>20)}
		}
		return &StatusError{http.StatusBadRequest, fmt.Errorf("read the manifest: %w", err)}
	}
	wake, cancel := s.agent.Changed()
	defer cancel()
	run, err := s.agent.Run(r.Context(), r.URL.Query().Get("origin"), manifest)
	if err != nil {
		return err
	}
	defer run.Close()
	w.Header().Set("Content-Type", ndjson)
	encoder := json.NewEncoder(w)
	return s.stream(w, r, wake, func() error {
		update := RunUpdate{Pods: run.Pods()}
		if err := run.Lost(); err != nil {
			update.Error = err.Error()
			return encoder.Encode(update)
		}
		for _, name := range update.Pods {
			if view, ok := s.agent.Pod(name.Namespace, name.Name); ok && view.OfRun() {
				update.Views = append(update.Views, view)
			}
		}
		return encoder.Encode(update)
	})
}
