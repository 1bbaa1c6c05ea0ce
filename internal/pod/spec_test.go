package pod_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestContainerNamed(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{InitContainers: []v1.Container{{Name: "init"}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	for name, want := range map[string]*v1.Container{"init": &p.Spec.InitContainers[0], "b": &p.Spec.Containers[1], "c": nil} {
		if got := pod.ContainerNamed(p, name); got != want {
			t.Errorf("container %q: %v", name, got)
		}
	}
}

func TestIsSidecar(t *testing.T) {
	for policy, want := range map[v1.ContainerRestartPolicy]bool{"Always": true, "OnFailure": false, "Never": false} {
		if pod.IsSidecar(&v1.Container{RestartPolicy: &policy}) != want {
			t.Errorf("restartPolicy %s: sidecar isn't %v", policy, want)
		}
	}
	if pod.IsSidecar(&v1.Container{}) {
		t.Error("an init container without a policy is a sidecar")
	}
}
