package translate_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestNeedsImageUser(t *testing.T) {
	seven := ptr.To(int64(7))
	for _, tc := range []struct {
		name string
		pod  *v1.PodSecurityContext
		own  *v1.SecurityContext
		want bool
	}{
		{"nothing", nil, nil, false},
		{"user", &v1.PodSecurityContext{RunAsUser: seven, RunAsGroup: seven, RunAsNonRoot: ptr.To(true)}, nil, false},
		{"own user", &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, &v1.SecurityContext{RunAsUser: seven}, false},
		{"non-root", &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, nil, true},
		{"may be root", &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}, &v1.SecurityContext{RunAsNonRoot: ptr.To(false)}, false},
		{"group", nil, &v1.SecurityContext{RunAsGroup: seven}, true},
	} {
		p := webPod()
		p.Spec.SecurityContext, p.Spec.Containers[0].SecurityContext = tc.pod, tc.own
		if got := translate.NeedsImageUser(p, &p.Spec.Containers[0]); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestNonRootIsTold(t *testing.T) {
	p := webPod()
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
	_, err := translate.ContainerConfig(settings(), translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0]})
	if !errors.Is(err, translate.ErrNonRoot) {
		t.Errorf("unexpected error: %v", err)
	}
}
