package apisource

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestCheckMessages: the status of a pod that no node can run has a message with the field and its fault.
func TestCheckMessages(t *testing.T) {
	for want, change := range map[string]func(*v1.Pod){
		"metadata.uid has 129 characters, and may have 128 at most": func(p *v1.Pod) {
			p.UID = types.UID(strings.Repeat("a", 129))
		},
		`metadata.name "` + strings.Repeat("a", 60) + `"... has 254 characters, and may have 253 at most`: func(p *v1.Pod) {
			p.Name = strings.Repeat("a", 254)
		},
		`metadata.namespace "a_b" has a character that no API server allows`: func(p *v1.Pod) { p.Namespace = "a_b" },
		`container name "a_b" has a character that no API server allows`: func(p *v1.Pod) {
			p.Spec.Containers[0].Name = "a_b"
		},
		"spec.containers is empty": func(p *v1.Pod) { p.Spec.Containers = nil },
		`two containers have the name "same"`: func(p *v1.Pod) {
			p.Spec.Containers[0].Name, p.Spec.InitContainers = "same", []v1.Container{{Name: "same"}}
		},
		`two volumes have the name "v"`: func(p *v1.Pod) { p.Spec.Volumes = []v1.Volume{{Name: "v"}, {Name: "v"}} },
		`volume name "v_" has a character that no API server allows`: func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v_"}}
		},
	} {
		p := newPod("a")
		if err := check(p, false); err != nil {
			t.Fatal(err)
		}
		change(p)
		if err := check(p, false); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
