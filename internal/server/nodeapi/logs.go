package nodeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"

	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
)

// logQuery holds the parameters of a request for a container's log.
type logQuery struct {
	logs.Options
	previous bool
}

// errOptions means that the parameters are well-formed but invalid, such as contradictory ones.
var errOptions = errors.New("invalid log options")

// parseLogQuery parses v1.PodLogOptions as the API server encodes them in a URL.
func parseLogQuery(q url.Values, now time.Time) (logQuery, error) {
	l := logQuery{Options: logs.Options{Tail: -1}}
	for name, field := range map[string]*bool{"follow": &l.Follow, "previous": &l.previous,
		"timestamps": &l.Timestamps} {
		values := q[name]
		if err := kruntime.Convert_Slice_string_To_bool(&values, field, nil); err != nil {
			return l, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	var seconds, tail, limit *int64
	for name, field := range map[string]**int64{"sinceSeconds": &seconds, "tailLines": &tail, "limitBytes": &limit} {
		values := q[name]
		if err := kruntime.Convert_Slice_string_To_Pointer_int64(&values, field, nil); err != nil {
			return l, fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	if since := q.Get("sinceTime"); since != "" {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return l, fmt.Errorf("parameter sinceTime: %w", err)
		}
		l.Since = at
	}
	l.Stream = logs.Stream(q.Get("stream"))
	invalid := func(text string) (logQuery, error) { return l, fmt.Errorf("%w: %s", errOptions, text) }
	switch {
	case seconds != nil && q.Get("sinceTime") != "":
		return invalid("at most one of sinceTime and sinceSeconds may be given")
	case seconds != nil && *seconds < 1:
		return invalid("sinceSeconds must be greater than 0")
	case tail != nil && *tail < 0:
		return invalid("tailLines must be greater than or equal to 0")
	case limit != nil && *limit < 1:
		return invalid("limitBytes must be greater than 0")
	case l.Stream != "" && l.Stream != logs.Both && l.Stream != logs.Stdout && l.Stream != logs.Stderr:
		return invalid("stream must be one of All, Stdout and Stderr")
	case tail != nil && l.Stream != "" && l.Stream != logs.Both:
		return invalid("tailLines and a stream other than All can't be given together")
	}
	if seconds != nil {
		l.Since = now.Add(-min(pod.Seconds(*seconds), longest))
	}
	if tail != nil {
		l.Tail = *tail
	}
	if limit != nil {
		l.LimitBytes = *limit
	}
	return l, nil
}

// longest is the maximum of sinceSeconds, so that the time.Duration doesn't overflow.
const longest = 100 * 365 * 24 * time.Hour

func (a *api) containerLogs(w http.ResponseWriter, r *http.Request) {
	query, err := parseLogQuery(r.URL.Query(), time.Now())
	if err != nil {
		code := http.StatusBadRequest
		if errors.Is(err, errOptions) {
			code = http.StatusUnprocessableEntity
		}
		http.Error(w, err.Error(), code)
		return
	}
	p, status := a.find(w, r)
	if status == nil {
		return
	}
	// Watch before reading, so that no change is missed.
	wake, cancel := a.Statuses.Watch()
	defer cancel()
	log := logs.Log{Namespace: p.Namespace, Pod: p.Name, UID: p.UID, Container: status.Name}
	attempts, err := a.Logs.Attempts(log)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	attempt, err := logs.Choose(p.Name, status, query.previous, attempts)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	followed := &logs.Followed{Log: log, Wake: wake, Latest: func() *v1.Pod {
		if e := a.Statuses.Get(p.UID); e != nil {
			return e.Pod
		}
		return nil
	}}
	text := &logWriter{w: w, flusher: http.NewResponseController(w)}
	err = a.Logs.Copy(r.Context(), text,
		logs.Request{Log: log, Attempt: attempt, Options: query.Options, Begun: func(int) { text.start() }}, followed)
	switch {
	case err == nil:
		text.start()
	case text.begun: // a regular end of the answer would look complete
		panic(http.ErrAbortHandler)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, fmt.Sprintf("the log of container %q in pod %q is gone", status.Name, p.Name),
			http.StatusNotFound)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// logWriter flushes every batch of lines. It sends the header as soon as the log is open, before the first line.
type logWriter struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	begun   bool
}

func (l *logWriter) start() {
	if l.begun {
		return
	}
	l.begun = true
	l.w.Header().Set("Content-Type", "text/plain")
	_ = l.flusher.Flush() // if the client is gone, Write fails too
}

func (l *logWriter) Write(b []byte) (int, error) {
	l.start()
	n, err := l.w.Write(b)
	if err != nil {
		return n, err
	}
	return n, l.flusher.Flush()
}
