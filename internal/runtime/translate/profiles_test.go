package translate

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func shown(p *runtimeapi.SecurityProfile, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case p == nil:
		return "nothing"
	}
	return strings.TrimSpace(fmt.Sprint(p.ProfileType, " ", p.LocalhostRef))
}

func local(name string) *v1.AppArmorProfile {
	return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
}

func of(kind v1.AppArmorProfileType) *v1.AppArmorProfile { return &v1.AppArmorProfile{Type: kind} }

func appArmorPod(podWide, own *v1.AppArmorProfile, annotation string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{
		SecurityContext: &v1.PodSecurityContext{AppArmorProfile: podWide},
		Containers:      []v1.Container{{Name: "m", SecurityContext: &v1.SecurityContext{AppArmorProfile: own}}},
	}}
	if annotation != "" {
		p.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/m": annotation}
	}
	return p
}

func TestAppArmor(t *testing.T) {
	loaded := func(name string) (bool, error) {
		if name == "unknown" {
			return false, errors.New("no securityfs")
		}
		return name != "missing", nil
	}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"nothing", appArmorPod(nil, nil, ""), "nothing"},
		{"the pod's", appArmorPod(local("a"), nil, ""), "Localhost a"},
		{"its own before the pod's", appArmorPod(local("a"), of("Unconfined"), ""), "Unconfined"},
		{"default", appArmorPod(nil, of("RuntimeDefault"), ""), "RuntimeDefault"},
		{"annotation before the pod's", appArmorPod(local("a"), nil, "localhost/b"), "Localhost b"},
		{"its own before the annotation", appArmorPod(nil, local("a"), "unconfined"), "Localhost a"},
		{"annotated default", appArmorPod(nil, nil, "runtime/default"), "RuntimeDefault"},
		{"annotated unconfined", appArmorPod(nil, nil, "unconfined"), "Unconfined"},
		{"annotated nonsense", appArmorPod(nil, nil, "strict"), `profile "strict" of its annotation is none`},
		{"not loaded", appArmorPod(nil, local("missing"), ""), `profile "missing" is not loaded`},
		{"can't be known", appArmorPod(nil, local("unknown"), ""), "no securityfs"},
		{"no name", appArmorPod(nil, of("Localhost"), ""), "needs localhostProfile"},
		{"no type", appArmorPod(nil, of("x"), ""), `unknown type "x"`},
	} {
		got := shown(appArmorProfile(tc.pod, &tc.pod.Spec.Containers[0], loaded))
		if !strings.Contains(got, tc.want) {
			t.Errorf("%s: %s, not %s", tc.name, got, tc.want)
		}
	}
	p := appArmorPod(nil, local("missing"), "")
	if got := shown(appArmorProfile(p, &p.Spec.Containers[0], nil)); got != "Localhost missing" {
		t.Errorf("left to the runtime: %s", got)
	}
}

func TestSeccomp(t *testing.T) {
	for _, tc := range []struct {
		profile   *v1.SeccompProfile
		byDefault bool
		want      string
	}{
		{nil, false, "Unconfined"},
		{nil, true, "RuntimeDefault"},
		{&v1.SeccompProfile{Type: "Unconfined"}, true, "Unconfined"},
		{&v1.SeccompProfile{Type: "RuntimeDefault"}, false, "RuntimeDefault"},
		{&v1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To("p/x.json")}, false, "Localhost /root/seccomp/p/x.json"},
		{&v1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To("../../etc/passwd")}, false, "inside the node's seccomp directory"},
		{&v1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To("/etc/passwd")}, false, "inside the node's seccomp directory"},
		{&v1.SeccompProfile{Type: "Localhost"}, false, "needs localhostProfile"},
		{&v1.SeccompProfile{Type: "x"}, false, `unknown type "x"`},
	} {
		if got := shown(seccompProfile(tc.profile, "/root/seccomp", tc.byDefault)); !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %s, not %s", tc.profile, got, tc.want)
		}
	}
}

func TestSELinux(t *testing.T) {
	if selinuxOption(nil) != nil {
		t.Error("the runtime isn't left to choose")
	}
	got := selinuxOption(&v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "l"})
	if got.User != "u" || got.Role != "r" || got.Type != "t" || got.Level != "l" {
		t.Errorf("have %v", got)
	}
}
