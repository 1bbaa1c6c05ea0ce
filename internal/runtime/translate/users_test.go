package translate_test

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
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

func TestNonRootIsReported(t *testing.T) {
	p := webPod()
	p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}
	_, err := translate.ContainerConfig(settings(), translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0]})
	if !errors.Is(err, translate.ErrNonRoot) {
		t.Errorf("unexpected error: %v", err)
	}
}

// The pod's own IDs reach the runtime with the sandbox, before any container's.
func TestSandboxUsersAreMapped(t *testing.T) {
	for _, sc := range []v1.PodSecurityContext{
		{RunAsUser: ptr.To(int64(70000))},
		{RunAsUser: ptr.To(int64(7)), RunAsGroup: ptr.To(int64(70000))},
		{SupplementalGroups: []int64{3, 70000}},
		{FSGroup: ptr.To(int64(70000))},
	} {
		p := webPod()
		p.Spec.SecurityContext = &sc
		in := translate.SandboxInput{Pod: p}
		if _, err := translate.SandboxConfig(settings(), in); err != nil {
			t.Errorf("%v among the host's users: %v", sc, err)
		}
		p.Spec.HostUsers, in.Users = ptr.To(false), &userns.Range{HostID: userns.Block, Length: userns.Block}
		if _, err := translate.SandboxConfig(settings(), in); err == nil || !strings.Contains(err.Error(), "70000 doesn't exist") {
			t.Errorf("%v: got %v, want that 70000 doesn't exist", sc, err)
		}
	}
}

// Groups of volumes come after the pod's own, each once, for containers only.
func TestGroupsOfVolumes(t *testing.T) {
	p := webPod()
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(7)), SupplementalGroups: []int64{3}}
	in := translate.ContainerInput{Pod: p, Container: &p.Spec.Containers[0], Groups: []int64{3, 70000}}
	got, err := translate.ContainerConfig(settings(), in)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "groups", got.GetLinux().GetSecurityContext().GetSupplementalGroups(), []int64{7, 3, 70000})
	p.Spec.HostUsers, in.Users = ptr.To(false), &userns.Range{HostID: userns.Block, Length: userns.Block}
	if _, err := translate.ContainerConfig(settings(), in); err == nil || !strings.Contains(err.Error(), "70000 doesn't exist") {
		t.Errorf("got %v, want that 70000 doesn't exist", err)
	}
}
