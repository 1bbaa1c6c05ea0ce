package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods lists the agent's pods with their current status.
type Pods interface {
	// Pods returns immutable pods. A changed pod has a new pointer; an unchanged one should keep its pointer, which
	// avoids encoding it again.
	Pods() []*v1.Pod
}

// Running lists the pods that the container runtime has.
type Running interface {
	Running(context.Context) ([]*pod.Observed, error)
}

// Machine describes the host.
type Machine interface {
	Info() (*MachineInfo, error)
}

// Sources provides the data of the read-only API.
type Sources struct {
	Pods    Pods
	Running Running
	Machine Machine
	// Health and Metrics serve /healthz and /metrics.
	Health, Metrics http.Handler
	// Stats has the handlers of resource usage, by path: /stats/summary and the paths below /metrics.
	Stats map[string]http.Handler
	// Pages has the handlers of the other pages, by path: Configz, Flagz and Statusz.
	Pages map[string]http.Handler
	// InCluster restricts the read-only API to the kubelet's paths: in a cluster, the others need authorization.
	InCluster bool
}

// Paths returns the paths of the read-only API without its Pages, sorted.
func Paths() []string {
	return []string{"/healthz", "/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource",
		"/metrics/slis", "/pods", "/runningpods/", "/spec/", "/stats/summary"}
}

// NewReadOnly returns the handler of the read-only API: /pods, /healthz, /metrics and Stats, as on the kubelet's
// read-only port, and outside a cluster also /runningpods/, /spec/ and Pages.
func NewReadOnly(log logr.Logger, s Sources) *http.ServeMux {
	a := &readOnly{PodLists: NewPodLists(log, s.Pods, s.Running), machine: s.Machine}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pods", a.Pods)
	mux.HandleFunc("GET /pods/{$}", a.Pods)
	mux.Handle("GET /healthz", s.Health)
	mux.Handle("GET /healthz/", s.Health)
	mux.Handle("GET /metrics", s.Metrics)
	for path, stats := range s.Stats {
		mux.Handle("GET "+path, stats)
	}
	if s.InCluster {
		return mux
	}
	mux.HandleFunc("GET /runningpods", a.Running)
	mux.HandleFunc("GET /runningpods/{$}", a.Running)
	mux.HandleFunc("GET /spec", a.spec)
	mux.HandleFunc("GET /spec/{$}", a.spec)
	for path, page := range s.Pages {
		mux.Handle("GET "+path, page)
	}
	return mux
}

// PodLists serves lists of pods.
type PodLists struct {
	log     logr.Logger
	pods    Pods
	running Running
	cache   podCache
}

// NewPodLists returns handlers for the agent's pods and for those of the container runtime.
func NewPodLists(log logr.Logger, pods Pods, running Running) *PodLists {
	return &PodLists{log: log, pods: pods, running: running}
}

type readOnly struct {
	*PodLists
	machine Machine
}

// Pods serves /pods.
func (a *PodLists) Pods(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodHead {
		return
	}
	a.logFailure("/pods", a.cache.write(w, a.pods.Pods()))
}

// Running serves /runningpods/.
func (a *PodLists) Running(w http.ResponseWriter, r *http.Request) {
	observed, err := a.running.Running(r.Context())
	if err != nil {
		a.fail(w, "/runningpods/", "the container runtime can't be asked for its pods", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodHead {
		return
	}
	a.logFailure("/runningpods/", writeList(w, runningPods(observed)))
}

func (a *readOnly) spec(w http.ResponseWriter, _ *http.Request) {
	info, err := a.machine.Info()
	if err != nil {
		a.fail(w, "/spec/", "the host can't be asked what it is made of", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a.logFailure("/spec/", json.NewEncoder(w).Encode(info))
}

func (a *PodLists) fail(w http.ResponseWriter, path, what string, err error) {
	a.log.Error(err, "Request failed", "path", path)
	http.Error(w, what+": "+err.Error(), http.StatusInternalServerError)
}

// logFailure logs an error of writing an answer. The status has been sent by then, and usually the client is gone.
func (a *PodLists) logFailure(path string, err error) {
	if err != nil {
		a.log.V(4).Info("Answer not delivered", "path", path, "err", err)
	}
}

// runningPods returns the pods with a ready sandbox or a running container. As in the kubelet's answer, each pod has
// only its identity and its running containers.
func runningPods(observed []*pod.Observed) []*v1.Pod {
	out := make([]*v1.Pod, 0, len(observed))
	for _, o := range observed {
		var containers []v1.Container
		for _, c := range o.Containers {
			if c.State == pod.ContainerRunning {
				containers = append(containers, v1.Container{Name: c.Name, Image: c.Image})
			}
		}
		ready := slices.ContainsFunc(o.Sandboxes, func(s pod.Sandbox) bool { return s.State == pod.SandboxReady })
		if !ready && len(containers) == 0 {
			continue
		}
		out = append(out, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, Namespace: o.Namespace, UID: o.UID},
			Spec:       v1.PodSpec{Containers: containers},
		})
	}
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return out
}
