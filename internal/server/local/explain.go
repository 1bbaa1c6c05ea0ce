package local

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// maxEvents is the maximum number of events in an Explanation.
const maxEvents = 20

// Details are details of a pod that its PodView doesn't have.
type Details struct {
	// Waits are the reasons why the pod waits. Wake is the time by which the agent syncs the pod again; zero if only an
	// event causes the next sync.
	Waits []Wait    `json:"waits,omitempty"`
	Wake  time.Time `json:"wake,omitzero"`
	// Stopping is the reason why the pod has to stop; empty if it doesn't have to.
	Stopping string `json:"stopping,omitempty"`
	// Eviction is set while the node has to evict pods, and may evict this one.
	Eviction *EvictionRank `json:"eviction,omitempty"`
	// Probes are the results of the pod's probes.
	Probes []pod.ProbeResult `json:"probes,omitempty"`
	// Failures describes the probes that fail.
	Failures []pod.ProbeFailures `json:"probeFailures,omitempty"`
}

// Explanation has everything that may explain a pod's state.
type Explanation struct {
	// Pod has the current status.
	Pod *v1.Pod `json:"pod"`
	// Source is the kind of source that the pod comes from. Origin is the path or URL of its manifest.
	Source pod.Source `json:"source,omitempty"`
	Origin string     `json:"origin,omitempty"`
	// Stale says why an older, valid version of the manifest is in effect; usually empty.
	Stale string `json:"stale,omitempty"`
	Details
	// Successor says why a newer pod of the same name hasn't started; empty if there is no such pod.
	Successor []Wait `json:"successor,omitempty"`
	// Runtime says why the runtime isn't ready; empty if it is.
	Runtime string `json:"runtime,omitempty"`
	// Problems are the problems of the pod's manifest.
	Problems []pod.Problem `json:"problems,omitempty"`
	// Events are the latest events about the pod, the newest last, without the output of probes.
	Events []Event `json:"events,omitempty"`
}

// Explain combines the i-th pod of a snapshot with its details and with the agent's events about it.
func Explain(s *Snapshot, i int, d Details, list []Event) Explanation {
	v := &s.Pods[i]
	e := Explanation{Pod: v.Pod, Source: v.Source, Origin: v.Origin, Stale: v.Stale, Details: d}
	if len(e.Waits) == 0 {
		e.Waits = v.Waits // a pod that hasn't started has no details
	}
	for j := range s.Pods {
		if other := &s.Pods[j]; j != i && other.Pod.Namespace == v.Pod.Namespace && other.Pod.Name == v.Pod.Name {
			e.Successor = other.Waits
		}
	}
	if !s.Agent.RuntimeReady {
		e.Runtime = s.Agent.RuntimeMessage
	}
	for _, p := range s.Problems {
		if isAbout(&p, v, s.Node) {
			e.Problems = append(e.Problems, p)
		}
	}
	for j := range list {
		name, ok := list[j].PodName()
		if ok && name == v.Pod.Name && list[j].Namespace == v.Pod.Namespace &&
			(list[j].UID == "" || list[j].UID == v.Pod.UID) {
			e.Events = append(e.Events, withoutOutput(list[j]))
		}
	}
	e.Events = e.Events[max(0, len(e.Events)-maxEvents):]
	return e
}

// withoutOutput removes the output of a probe, because explanations are shared.
func withoutOutput(e Event) Event {
	e.Message = events.WithoutOutput(pod.Reason(e.Reason), e.Message)
	return e
}

// isAbout reports whether a problem is about the manifest of the pod v. The problem has the pod's name without the
// node's name at its end.
func isAbout(p *pod.Problem, v *PodView, node string) bool {
	if p.Pod == "" {
		return p.Origin == v.Origin || strings.HasPrefix(p.Origin, v.Origin+", ")
	}
	name := v.Pod.Namespace + "/" + v.Pod.Name
	return p.Pod == name || p.Pod+"-"+node == name
}

func (s *Server) why(w http.ResponseWriter, r *http.Request) error {
	namespace, name := r.URL.Query().Get("namespace"), r.URL.Query().Get("pod")
	snapshot, err := s.agent.Snapshot(r.Context())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(snapshot.Pods, func(v PodView) bool {
		return v.Pod.Namespace == namespace && v.Pod.Name == name
	})
	if i < 0 {
		return notFound(namespace, name)
	}
	return answer(w, Explain(&snapshot, i, s.agent.Details(r.Context(), snapshot.Pods[i].Pod.UID), s.agent.Events()))
}

func (s *Server) journal(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	namespace, name, previous := q.Get("namespace"), q.Get("pod"), false
	switch q.Get("previous") {
	case "", "false":
	case "true":
		previous = true
	default:
		return &StatusError{http.StatusBadRequest,
			fmt.Errorf("parameter previous: %q is neither true nor false", q.Get("previous"))}
	}
	view, ok := s.agent.Pod(namespace, name)
	if !ok {
		return notFound(namespace, name)
	}
	text, ok := s.agent.Journal(view.Pod.UID, previous)
	switch {
	case !ok && previous:
		return &StatusError{http.StatusNotFound,
			fmt.Errorf("no earlier agent left a journal of pod %s/%s", namespace, name)}
	case !ok:
		return &StatusError{http.StatusNotFound,
			fmt.Errorf("there is no journal of pod %s/%s: either nothing was decided about it yet, or the agent runs "+
				"with --journal-bytes 0", namespace, name)}
	}
	return sendText(w, text)
}

func (s *Server) nodeJournal(w http.ResponseWriter, _ *http.Request) error {
	text := s.agent.NodeJournal()
	if len(text) == 0 {
		return &StatusError{http.StatusNotFound, errors.New("there is no journal of the node: nothing has run short " +
			"since the agent began")}
	}
	return sendText(w, text)
}

func sendText(w http.ResponseWriter, text []byte) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err := w.Write(text)
	return ignoreGone(err)
}

func notFound(namespace, name string) error {
	return &StatusError{http.StatusNotFound, fmt.Errorf("pod %s/%s not found", namespace, name)}
}
