package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/deckhand-node/deckhand/test/csidriver/driver"
)

// newControl serves the control socket (see the package's comment).
func newControl(j *journal, rules *rules) *http.Server {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, r *http.Request) {
		version, err := strconv.Atoi(r.FormValue("after"))
		if err != nil {
			version = -1
		}
		changed, stop := j.changed.Subscribe()
		defer stop()
		for {
			if s, newer := j.after(version); newer {
				answer(w, s)
				return
			}
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /rules", func(w http.ResponseWriter, r *http.Request) {
		var rule driver.Rule
		if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&rule); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, rules.add(rule))
	})
	mux.HandleFunc("DELETE /rules", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.FormValue("id"))
		if err != nil || !rules.release(id) {
			http.Error(w, "there is no such rule", http.StatusNotFound)
		}
	})
	mux.HandleFunc("POST /clear", func(http.ResponseWriter, *http.Request) { j.clear() })
	return &http.Server{Handler: mux}
}

// registrar serves the registration at the node.
type registrar struct {
	registration.UnsafeRegistrationServer
	config  config
	journal *journal
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	r.journal.registered(nil)
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.config.registeredName,
		Endpoint: r.config.registeredPath, SupportedVersions: strings.Split(r.config.versions, ",")}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (
	*registration.RegistrationStatusResponse, error) {
	r.journal.registered(&driver.Registration{Registered: s.GetPluginRegistered(), Error: s.GetError(), At: time.Now()})
	return &registration.RegistrationStatusResponse{}, nil
}
