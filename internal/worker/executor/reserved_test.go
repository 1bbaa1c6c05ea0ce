package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var holderID = strings.Repeat("ab", 32)

// reserving is a runtime that has lost the answer to a create call: the name is reserved until the holder is removed.
type reserving struct {
	*sandboxWorld
	sandbox   *runtimeapi.PodSandboxStatus
	container *runtimeapi.ContainerStatus
	message   string
	calls     []string
	seen      pod.ContainerState // the last one that the observer was given
}

func (r *reserving) call(what string) {
	r.calls = append(r.calls, what)
	if strings.HasPrefix(what, "remove") {
		r.sandbox, r.container = nil, nil
		r.message = ""
	}
}

func (r *reserving) create() (string, error) {
	r.call("create")
	if r.message != "" {
		return "", status.Error(codes.FailedPrecondition, r.message)
	}
	return "new", nil
}

func (r *reserving) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return r.create()
}

func (r *reserving) PodSandboxStatus(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if id == "new" {
		return &runtimeapi.PodSandboxStatus{}, nil
	}
	r.call("status " + id)
	if r.sandbox == nil {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return r.sandbox, nil
}

func (r *reserving) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	r.call("status " + id)
	if r.container == nil {
		return nil, status.Error(codes.NotFound, "not found")
	}
	return r.container, nil
}

func (r *reserving) StopPodSandbox(_ context.Context, id string) error {
	r.call("stop " + id)
	return nil
}
func (r *reserving) RemovePodSandbox(_ context.Context, id string) error {
	r.call("remove " + id)
	return nil
}
func (r *reserving) RemoveContainer(_ context.Context, id string) error {
	r.call("remove " + id)
	return nil
}
func (r *reserving) SandboxRemoved(string)   {}
func (r *reserving) ContainerRemoved(string) {}
func (r *reserving) ContainerCreated(_ types.UID, _, _ string, c pod.Container) {
	r.seen = c.State
}
func (r *reserving) SandboxCreated(types.UID, string, string, pod.Sandbox) {
}

func labelsFor(uid, container string) map[string]string {
	return map[string]string{"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "n",
		"io.kubernetes.container.name": container}
}

func reservedError(id string) string {
	return fmt.Sprintf(`failed to reserve name "x_p_n_u_1": name "x_p_n_u_1" is reserved for %q`, id)
}

// TestReservedSandboxName: the sandbox of a call whose answer was lost is used if it is ready, else it makes room.
func TestReservedSandboxName(t *testing.T) {
	st := func(change func(*runtimeapi.PodSandboxStatus)) *runtimeapi.PodSandboxStatus {
		s := &runtimeapi.PodSandboxStatus{Id: holderID, Labels: labelsFor("u", ""), Metadata: &runtimeapi.PodSandboxMetadata{Attempt: 1}}
		change(s)
		return s
	}
	same := func(*runtimeapi.PodSandboxStatus) {}
	look := "status " + holderID
	for name, tc := range map[string]struct {
		sandbox *runtimeapi.PodSandboxStatus
		message string
		id      string
		calls   []string
	}{
		"ready":     {st(same), reservedError(holderID), holderID, []string{"create", look, look}},
		"not ready": {st(func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY }), reservedError(holderID), "new", []string{"create", look, "stop " + holderID, "remove " + holderID, "create"}},
		"with another handler": {st(func(s *runtimeapi.PodSandboxStatus) { s.RuntimeHandler = "kata" }), reservedError(holderID), "new",
			[]string{"create", look, "stop " + holderID, "remove " + holderID, "create"}},
		"of another pod":     {st(func(s *runtimeapi.PodSandboxStatus) { s.Labels = labelsFor("other", "") }), reservedError(holderID), "", []string{"create", look}},
		"of another attempt": {st(func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Attempt = 2 }), reservedError(holderID), "", []string{"create", look}},
		"without labels":     {st(func(s *runtimeapi.PodSandboxStatus) { s.Labels = nil }), reservedError(holderID), "", []string{"create", look}},
		"of another ID":      {st(func(s *runtimeapi.PodSandboxStatus) { s.Id = "other" }), reservedError(holderID), "", []string{"create", look}},
		"in progress":        {nil, reservedError(holderID), "", []string{"create", look}},
		"no ID":              {st(same), reservedError("../../etc"), "", []string{"create"}},
		"an ID that is long": {st(same), reservedError(holderID + "0"), "", []string{"create"}},
		"text after the ID":  {st(same), reservedError(holderID) + " or not", "", []string{"create"}},
		"some other refusal": {st(same), "no", "", []string{"create"}},
	} {
		w := &reserving{sandboxWorld: &sandboxWorld{}, sandbox: tc.sandbox, message: tc.message}
		cfg := w.runner().cfg
		cfg.Runtime, cfg.Observer = w, w
		d := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"}}}
		got := New(cfg).Do(t.Context(), d, nil, "u", pod.Action{Kind: pod.CreateSandbox, Attempt: 1})
		if got.ID != tc.id || (got.Failure == nil) != (tc.id != "") || !slices.Equal(w.calls, tc.calls) {
			t.Errorf("%s: %+v after %q, want %q after %q", name, got, w.calls, tc.id, tc.calls)
		}
		if name == "in progress" && !strings.Contains(got.Failure.Message, "restart the runtime") {
			t.Errorf("%s: %s", name, got.Failure.Message)
		}
	}
}

// TestReservedContainerName: a container that was never started makes room for the next one, any other doesn't.
func TestReservedContainerName(t *testing.T) {
	st := func(change func(*runtimeapi.ContainerStatus)) *runtimeapi.ContainerStatus {
		s := &runtimeapi.ContainerStatus{Id: holderID, Labels: labelsFor("u", "web"), Metadata: &runtimeapi.ContainerMetadata{Name: "web", Attempt: 1}}
		change(s)
		return s
	}
	look := "status " + holderID
	for name, tc := range map[string]struct {
		container *runtimeapi.ContainerStatus
		id        string
		calls     []string
	}{
		"created":              {st(func(*runtimeapi.ContainerStatus) {}), "new", []string{"create", look, "remove " + holderID, "create"}},
		"running":              {st(func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_RUNNING }), "", []string{"create", look}},
		"ended":                {st(func(s *runtimeapi.ContainerStatus) { s.State = runtimeapi.ContainerState_CONTAINER_EXITED }), "", []string{"create", look}},
		"of another pod":       {st(func(s *runtimeapi.ContainerStatus) { s.Labels = labelsFor("other", "web") }), "", []string{"create", look}},
		"of another container": {st(func(s *runtimeapi.ContainerStatus) { s.Labels = labelsFor("u", "db") }), "", []string{"create", look}},
		"of another attempt":   {st(func(s *runtimeapi.ContainerStatus) { s.Metadata.Attempt = 2 }), "", []string{"create", look}},
		"of another ID":        {st(func(s *runtimeapi.ContainerStatus) { s.Id = "other" }), "", []string{"create", look}},
		"in progress":          {nil, "", []string{"create", look}},
	} {
		w := &reserving{sandboxWorld: &sandboxWorld{}, container: tc.container, message: reservedError(holderID)}
		cfg := w.runner().cfg
		cfg.Runtime, cfg.Observer = w, w
		_, refused := w.create()
		id, err := New(cfg).replaceContainer(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, pod.Action{Container: "web", Attempt: 1}, refused, w.create)
		if id != tc.id || (err == nil) != (tc.id != "") || !slices.Equal(w.calls, tc.calls) {
			t.Errorf("%s: %q, %v after %q, want %q after %q", name, id, err, w.calls, tc.id, tc.calls)
		}
		if err != nil && !errors.Is(err, refused) {
			t.Errorf("%s: %v isn't the runtime's error", name, err)
		}
	}
}

// TestStartedMeanwhile: a container that was created when it was last seen, and has been started since, isn't removed,
// which would kill it or lose its exit code.
func TestStartedMeanwhile(t *testing.T) {
	for state, want := range map[runtimeapi.ContainerState]pod.ContainerState{
		runtimeapi.ContainerState_CONTAINER_CREATED: pod.ContainerCreated,
		runtimeapi.ContainerState_CONTAINER_RUNNING: pod.ContainerRunning,
		runtimeapi.ContainerState_CONTAINER_EXITED:  pod.ContainerExited,
	} {
		w := &reserving{sandboxWorld: &sandboxWorld{}, container: &runtimeapi.ContainerStatus{Id: holderID, State: state,
			Labels: labelsFor("u", "c"), Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}}
		cfg := w.runner().cfg
		cfg.Runtime, cfg.Observer, cfg.Logs = w, w, &database{}
		o := &pod.Observed{UID: "u", Name: "p", Namespace: "n",
			Containers: []pod.Container{{ID: holderID, Name: "c", State: pod.ContainerCreated}}}
		got := New(cfg).Do(t.Context(), nil, o, "u", pod.Action{Kind: pod.RemoveContainer, Container: "c", ID: holderID})
		removed := slices.Contains(w.calls, "remove "+holderID)
		if got.Failure != nil || removed != (want == pod.ContainerCreated) || w.seen != want {
			t.Errorf("%s: %v, %q, seen as %q", state, got.Failure, w.calls, w.seen)
		}
	}
}
