package view

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// TestAddContainer: to whichever pod a container can't be added, the answer says why, and what to do.
func TestAddContainer(t *testing.T) {
	merger, statuses := desired.New(logr.Discard(), pod.SourceFile, pod.SourceAPI), podstatus.NewStore()
	claim := func(source pod.Source, name string) desired.Claim {
		p := &v1.Pod{}
		p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
		return desired.Claim{Desired: &pod.Desired{Pod: p, Source: source, Origin: name}}
	}
	report := desired.Report{Source: pod.SourceFile}
	for name, r := range map[string]*pod.Report{
		"running": {Status: &v1.PodStatus{Phase: v1.PodRunning}}, "waiting": nil, "stopped": nil,
		"failed": {Status: &v1.PodStatus{Phase: v1.PodFailed}}, "stopping": {Status: &v1.PodStatus{Phase: v1.PodRunning}, Stopping: true, StoppingWhy: "it was evicted"},
	} {
		c := claim(pod.SourceFile, name)
		report.Claims = append(report.Claims, c)
		if r != nil {
			r.Desired = c.Desired
			statuses.Publish(c.Desired.Pod.UID, *r)
		}
	}
	merger.Report(report)
	merger.Report(desired.Report{Source: pod.SourceAPI, Claims: []desired.Claim{claim(pod.SourceAPI, "theirs")}})
	stops := desired.NewStops(filepath.Join(t.TempDir(), "stopped.json"), merger, nil, nil)
	if err := stops.Stop(false, types.NamespacedName{Namespace: "default", Name: "stopped"}); err != nil {
		t.Fatal(err)
	}
	var wrong field.ErrorList
	var refused *pod.Failure
	v := New(Config{Desired: merger, Statuses: statuses, Additions: desired.NewAdditions(filepath.Join(t.TempDir(), "added.json"), merger, desired.AdditionRules{
		SetDefaults: func(*v1.Pod) {}, Validate: func(*v1.Pod) field.ErrorList { return wrong },
		Refuses: func(p *v1.Pod) *pod.Failure {
			if pod.ContainerNamed(p, "second") == nil {
				return nil
			}
			return refused
		},
		Unsupported: func(*v1.Pod, *v1.Container) *pod.Failure { return nil },
	})})
	add := func(name, container string) error {
		c := v1.EphemeralContainer{}
		c.Name, c.Image = container, "tools:1"
		return v.AddContainer(types.NamespacedName{Namespace: "default", Name: name}, types.UID(name), c)
	}
	fails := func(err error, code int, words string) {
		t.Helper()
		if status := (*local.StatusError)(nil); !errors.As(err, &status) || status.Code != code || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %d: %s", err, code, words)
		}
	}
	for _, name := range []string{"running", "waiting"} {
		if err := add(name, "first"); err != nil || pod.ContainerNamed(merger.Current().Get(types.UID(name)).Pod, "first") == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	fails(v.AddContainer(types.NamespacedName{Namespace: "default", Name: "running"}, "older", v1.EphemeralContainer{}), http.StatusConflict, "is another one by now")
	fails(add("none", "first"), http.StatusNotFound, "pod default/none is in no manifest")
	fails(add("theirs", "first"), http.StatusConflict, "pod default/theirs is of the API server, which has to know all of its containers: add it there (kubectl debug -n default theirs --image=tools:1)")
	fails(add("stopped", "first"), http.StatusConflict, "is stopped: `deckhand start stopped` starts it")
	fails(add("failed", "first"), http.StatusConflict, "has ended (Failed)")
	fails(add("stopping", "first"), http.StatusConflict, "is being stopped: it was evicted")
	wrong = field.ErrorList{field.Required(field.NewPath("spec", "ephemeralContainers").Index(1).Child("image"), ""), field.Required(field.NewPath("spec", "containers"), "")}
	fails(add("running", "second"), http.StatusUnprocessableEntity, "no such container can be added to pod default/running: spec.ephemeralContainers[1].image: Required value")
	wrong, refused = nil, &pod.Failure{Reason: pod.ReasonAppArmor, Message: "there is none", Rejected: true}
	fails(add("running", "second"), http.StatusUnprocessableEntity, "this node doesn't admit pod default/running with such a container (AppArmor): there is none")
}
