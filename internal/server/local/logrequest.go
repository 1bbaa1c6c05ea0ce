package local

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/logs"
)

// LogRequest selects a container's log.
type LogRequest struct {
	Namespace string
	Pod       string
	Container string
	// Previous selects the instance before the current one.
	Previous bool
	// AllInstances selects all instances of the container that have a log, from the oldest on. kubectl has no such
	// option; `deckhand run` needs it.
	AllInstances bool
	// AtLeast is the lowest number of an instance to select: the first instance from that number on that has a log. The
	// agent waits for it if necessary. 0 means no such limit.
	AtLeast int
	logs.Options
}

// query encodes the request as URL parameters; most have the names of v1.PodLogOptions.
func (r LogRequest) query() url.Values {
	q := url.Values{"namespace": {r.Namespace}, "pod": {r.Pod}, "container": {r.Container}}
	for name, on := range map[string]bool{"previous": r.Previous, "all": r.AllInstances, "follow": r.Follow,
		"timestamps": r.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if r.Tail >= 0 {
		q.Set("tail", strconv.FormatInt(r.Tail, 10))
	}
	if !r.Since.IsZero() {
		q.Set("since", r.Since.Format(time.RFC3339Nano))
	}
	if r.AtLeast > 0 {
		q.Set("atLeast", strconv.Itoa(r.AtLeast))
	}
	if r.LimitBytes > 0 {
		q.Set("limitBytes", strconv.FormatInt(r.LimitBytes, 10))
	}
	if r.Stream != "" {
		q.Set("stream", string(r.Stream))
	}
	return q
}

// parseLogRequest is the inverse of query.
func parseLogRequest(q url.Values) (LogRequest, error) {
	r := LogRequest{Namespace: q.Get("namespace"), Pod: q.Get("pod"), Container: q.Get("container")}
	r.Tail = -1
	r.Stream = logs.Stream(q.Get("stream"))
	for name, field := range map[string]*bool{"previous": &r.Previous, "all": &r.AllInstances, "follow": &r.Follow,
		"timestamps": &r.Timestamps} {
		if err := parse(q, name, field, strconv.ParseBool); err != nil {
			return r, err
		}
	}
	integer := func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) }
	if err := parse(q, "tail", &r.Tail, integer); err != nil {
		return r, err
	}
	if err := parse(q, "limitBytes", &r.LimitBytes, integer); err != nil {
		return r, err
	}
	if err := parse(q, "atLeast", &r.AtLeast, strconv.Atoi); err != nil {
		return r, err
	}
	stamp := func(s string) (time.Time, error) { return time.Parse(time.RFC3339Nano, s) }
	if err := parse(q, "since", &r.Since, stamp); err != nil {
		return r, err
	}
	return r, r.validate()
}

func (r LogRequest) validate() error {
	switch {
	case r.Namespace == "" || r.Pod == "" || r.Container == "":
		return fmt.Errorf("namespace, pod and container are required")
	case r.LimitBytes < 0:
		return fmt.Errorf("limitBytes must be positive, not %d", r.LimitBytes)
	case r.Previous && r.AllInstances:
		return fmt.Errorf("previous and all can't be combined")
	case r.AtLeast < 0:
		return fmt.Errorf("atLeast must be positive, not %d", r.AtLeast)
	case r.AtLeast > 0 && (r.Previous || r.AllInstances):
		return fmt.Errorf("atLeast can't be combined with previous or all")
	case r.Stream != "" && r.Stream != logs.Both && r.Stream != logs.Stdout && r.Stream != logs.Stderr:
		return fmt.Errorf("stream must be one of All, Stdout and Stderr, not %q", r.Stream)
	case r.Tail >= 0 && (r.Stream == logs.Stdout || r.Stream == logs.Stderr):
		// As in v1.PodLogOptions (TailLines).
		return fmt.Errorf("tail can't be combined with stream %s", r.Stream)
	}
	return nil
}

func parse[T any](q url.Values, name string, field *T, from func(string) (T, error)) error {
	if !q.Has(name) {
		return nil
	}
	value, err := from(q.Get(name))
	if err != nil {
		return fmt.Errorf("parameter %s: %w", name, err)
	}
	*field = value
	return nil
}
