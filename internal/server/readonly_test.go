package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server"
)

type fakePods []*v1.Pod

func (f fakePods) Pods() []*v1.Pod { return f }

type fakeRunning struct {
	pods []*pod.Observed
	err  error
}

func (f fakeRunning) Running(context.Context) ([]*pod.Observed, error) { return f.pods, f.err }

type fakeMachine struct{ err error }

func (f fakeMachine) Info() (*server.MachineInfo, error) {
	return &server.MachineInfo{NumCores: 2, MemoryCapacity: 1 << 30}, f.err
}

func sources() server.Sources {
	return server.Sources{
		Pods: fakePods{
			{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "1"}, Status: v1.PodStatus{Phase: v1.PodRunning}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "default", UID: "2"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "<i>"}}}},
		},
		Running: fakeRunning{pods: []*pod.Observed{
			{
				UID: "2", Name: "b", Namespace: "default",
				Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxReady}},
				Containers: []pod.Container{
					{Name: "c", Image: "example.com/c:1", State: pod.ContainerRunning},
					{Name: "c", Image: "example.com/c:0", State: pod.ContainerExited},
				},
			},
			{UID: "1", Name: "a", Namespace: "default", Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxReady}}},
			{UID: "3", Name: "gone", Namespace: "default", Sandboxes: []pod.Sandbox{{ID: "s", State: pod.SandboxNotReady}}},
		}},
		Machine: fakeMachine{},
		Health:  server.Health(server.Check{Name: "ping", Func: func(context.Context) error { return nil }}),
		Metrics: say("# metrics"),
	}
}

func TestReadOnlyAPI(t *testing.T) {
	h := server.NewReadOnly(logr.Discard(), sources())
	for target, want := range map[string]string{
		"/runningpods/": `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[` +
			`{"metadata":{"name":"a","namespace":"default","uid":"1"},"spec":{"containers":null},"status":{}},` +
			`{"metadata":{"name":"b","namespace":"default","uid":"2"},"spec":{"containers":[{"name":"c","image":"example.com/c:1","resources":{}}]},"status":{}}]}` + "\n",
		"/healthz":      "ok",
		"/healthz/ping": "ok",
		"/metrics":      "# metrics",
	} {
		if rec := ask(h, http.MethodGet, target); rec.Code != http.StatusOK || rec.Body.String() != want {
			t.Errorf("%s: got %d\n%s\nwant\n%s", target, rec.Code, rec.Body, want)
		}
	}
}

func TestPodsAreAPodList(t *testing.T) {
	s := sources()
	h := server.NewReadOnly(logr.Discard(), s)
	for _, target := range []string{"/pods", "/pods/", "/pods"} { // the third answer comes from what the first left
		rec := ask(h, http.MethodGet, target)
		var got v1.PodList
		if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		want := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		for _, p := range s.Pods.Pods() {
			want.Items = append(want.Items, *p)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
		if rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: content type %q", target, rec.Header().Get("Content-Type"))
		}
	}
}

func TestSpec(t *testing.T) {
	h := server.NewReadOnly(logr.Discard(), sources())
	var got map[string]any
	if err := json.Unmarshal(ask(h, http.MethodGet, "/spec/").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got["num_cores"] != 2.0 || got["memory_capacity"] != float64(1<<30) {
		t.Errorf("got %v", got)
	}
}

func TestReadOnlyTakesOnlyReads(t *testing.T) {
	h := server.NewReadOnly(logr.Discard(), sources())
	for _, target := range []string{"/pods", "/runningpods/", "/spec/", "/healthz", "/healthz/ping", "/metrics"} {
		for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405} {
			rec := ask(h, method, target)
			if rec.Code != want {
				t.Errorf("%s %s: status %d, want %d", method, target, rec.Code, want)
			}
			if want == 405 && !strings.Contains(rec.Header().Get("Allow"), "GET") {
				t.Errorf("%s %s: Allow is %q", method, target, rec.Header().Get("Allow"))
			}
		}
	}
	if rec := ask(h, http.MethodGet, "/exec/default/a/c"); rec.Code != http.StatusNotFound {
		t.Errorf("an unknown path: status %d", rec.Code)
	}
}

func TestFailuresAreReported(t *testing.T) {
	s := sources()
	s.Running = fakeRunning{err: errors.New("connection refused")}
	s.Machine = fakeMachine{err: errors.New("no /proc")}
	h := server.NewReadOnly(logr.Discard(), s)
	for target, want := range map[string]string{"/runningpods/": "connection refused", "/spec/": "no /proc"} {
		if rec := ask(h, http.MethodGet, target); rec.Code != http.StatusInternalServerError || !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: got %d %s", target, rec.Code, rec.Body)
		}
	}
}

// TestReadOnlyInCluster: what takes a right in a cluster isn't to be had without one.
func TestReadOnlyInCluster(t *testing.T) {
	s := sources()
	s.InCluster, s.Pages = true, map[string]http.Handler{"/configz": s.Metrics}
	h := server.NewReadOnly(logr.Discard(), s)
	for path, want := range map[string]int{"/pods": 200, "/pods/": 200, "/healthz": 200, "/healthz/ping": 200, "/metrics": 200, "/runningpods/": 404, "/spec/": 404, "/configz": 404, "/containerLogs/a/b/c": 404} {
		if got := ask(h, http.MethodGet, path).Code; got != want {
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
}
