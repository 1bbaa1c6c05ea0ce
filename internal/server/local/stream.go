package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

const (
	// minPause is the minimum pause between two updates of a stream. dutyCycle is the ratio of a pause to the time that
	// the previous update took: with it, a watcher of very many pods uses at most a tenth of a CPU.
	minPause  = 50 * time.Millisecond
	dutyCycle = 9
	ndjson    = "application/x-ndjson"
)

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request) error {
	snapshot, err := s.agent.Snapshot(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	return ignoreGone(encodeSnapshot(w, snapshot))
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) error {
	wake, cancel := s.agent.Changed()
	defer cancel()
	first, err := s.agent.Snapshot(r.Context())
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", ndjson)
	next := &first
	return s.stream(w, r, wake, func() error {
		snapshot := next
		next = nil
		if snapshot == nil {
			fresh, err := s.agent.Snapshot(r.Context())
			if err != nil {
				return err
			}
			snapshot = &fresh
		}
		return encodeSnapshot(w, *snapshot)
	})
}

// stream calls the function write at once and after every wake-up, until the client leaves or the agent stops. Changes
// during a pause, or while a slow client reads the last update, are merged into one update.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, wake <-chan struct{}, write func() error) error {
	ctx := r.Context()
	flusher := http.NewResponseController(w)
	for {
		begun := time.Now()
		err := write()
		if err == nil {
			err = flusher.Flush()
		}
		if err != nil {
			s.log.V(4).Info("Local API stream ended", "path", r.URL.Path, "err", err)
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(minPause, dutyCycle*time.Since(begun))):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		}
	}
}

func (s *Server) node(w http.ResponseWriter, r *http.Request) error {
	n, err := s.agent.Node(r.Context())
	if err != nil {
		return err
	}
	return answer(w, n)
}

func (s *Server) config(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, s.agent.Configuration())
}

func (s *Server) events(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, s.agent.Events())
}

// watchEvents sends a list of all events, and then lists of new ones.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request) error {
	wake, cancel := s.agent.EventsChanged()
	defer cancel()
	w.Header().Set("Content-Type", ndjson)
	next := func(uint64) []Event { return s.agent.Events() }
	var seq uint64
	return s.stream(w, r, wake, func() error {
		events := next(seq)
		next = s.agent.EventsSince
		for i := range events {
			seq = max(seq, events[i].Seq)
		}
		return json.NewEncoder(w).Encode(events)
	})
}

// encodeSnapshot writes a snapshot as one line of JSON, pod by pod: with thousands of pods the JSON has many
// megabytes.
func encodeSnapshot(w io.Writer, snapshot Snapshot) error {
	pods := snapshot.Pods
	snapshot.Pods = nil // Pods is the last field in JSON, and omitted if empty
	head, err := json.Marshal(snapshot)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 16<<10)
	// bufio returns the first error from Flush.
	_, _ = out.Write(head[:len(head)-1])
	_, _ = out.WriteString(`,"pods":[`)
	for i := range pods {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		text, err := json.Marshal(&pods[i])
		if err != nil {
			return err
		}
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}

// ignoreGone ignores errors of writing to a client that is gone.
func ignoreGone(err error) error {
	var badValue *json.MarshalerError
	var badType *json.UnsupportedTypeError
	if errors.As(err, &badValue) || errors.As(err, &badType) {
		return err
	}
	return nil
}
