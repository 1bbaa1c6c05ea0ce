package translate_test

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestFeatures(t *testing.T) {
	able := &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true, RecursiveReadOnlyMounts: true}
	got := translate.FeaturesOf(&runtimeapi.StatusResponse{
		Features:        &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
		RuntimeHandlers: []*runtimeapi.RuntimeHandler{{Features: able}, {Name: "old"}},
	})
	equal(t, "features", got, &translate.Features{SupplementalGroupsPolicy: true, Handlers: map[string]translate.HandlerFeatures{
		"": {UserNamespaces: true, RecursiveReadOnlyMounts: true}, "old": {}}})
	equal(t, "of an old runtime", translate.FeaturesOf(&runtimeapi.StatusResponse{}).Handlers[""], translate.HandlerFeatures{})
}

func TestAdmit(t *testing.T) {
	able := &translate.Features{SupplementalGroupsPolicy: true, Handlers: map[string]translate.HandlerFeatures{"": {UserNamespaces: true}, "vm": {}}}
	own := func(p *v1.Pod) { p.Spec.HostUsers = ptr.To(false) }
	strict := func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: ptr.To(v1.SupplementalGroupsPolicyStrict)}
	}
	appArmor := func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}}
	}
	unsafe := func(p *v1.Pod) {
		p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.sem", Value: "1"}}}
	}
	for _, tc := range []struct {
		name     string
		settings translate.Settings
		features *translate.Features
		handler  string
		change   func(*v1.Pod)
		want     *pod.Failure // Message is part of it
	}{
		{"plain, runtime unknown", translate.Settings{}, nil, "", func(*v1.Pod) {}, nil},
		{"own users", translate.Settings{}, able, "", own, nil},
		{"own users, runtime unknown", translate.Settings{}, nil, "", own, &pod.Failure{Reason: "FailedCreatePodSandBox", Message: "hasn't told yet"}},
		{"own users, old runtime", translate.Settings{}, &translate.Features{}, "", own,
			&pod.Failure{Reason: "FailedCreatePodSandBox", Permanent: true, Message: "can't set `spec.hostUsers: false`, runtime does not support user namespaces"}},
		{"own users, other handler", translate.Settings{}, able, "vm", own,
			&pod.Failure{Reason: "FailedCreatePodSandBox", Permanent: true, Message: `runtime handler "vm" does not support user namespaces`}},
		{"strict groups", translate.Settings{}, able, "vm", strict, nil},
		{"strict groups, runtime unknown", translate.Settings{}, nil, "", strict, &pod.Failure{Reason: "FailedCreatePodSandBox", Message: "hasn't told yet"}},
		{"strict groups, old runtime", translate.Settings{}, &translate.Features{}, "", strict,
			&pod.Failure{Reason: "SupplementalGroupsPolicyNotSupported", Rejected: true, Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}},
		{"AppArmor", translate.Settings{AppArmor: true}, nil, "", appArmor, nil},
		{"no AppArmor", translate.Settings{}, nil, "", appArmor, &pod.Failure{Reason: "AppArmor", Rejected: true, Message: "AppArmor is not enabled on the host"}},
		{"sysctl", translate.Settings{}, nil, "", unsafe, &pod.Failure{Reason: "SysctlForbidden", Rejected: true, Message: `"kernel.sem"`}},
		{"sysctl allowed", translate.Settings{AllowedUnsafeSysctls: []string{"kernel.sem"}}, nil, "", unsafe, nil},
	} {
		p := webPod()
		tc.change(p)
		err := translate.Admit(&tc.settings, tc.features, tc.handler, p)
		var f *pod.Failure
		switch {
		case tc.want == nil:
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		case !errors.As(err, &f) || f.Reason != tc.want.Reason || f.Permanent != tc.want.Permanent || f.Rejected != tc.want.Rejected || !strings.Contains(f.Message, tc.want.Message):
			t.Errorf("%s: unexpected error: %v", tc.name, err)
		}
	}
}

// TestSandboxThatIsThere: what the node allows by now doesn't keep containers out
// of a sandbox that was allowed before.
func TestSandboxThatIsThere(t *testing.T) {
	p := webPod()
	p.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.sem", Value: "1"}}}
	cfg, err := translate.SandboxConfig(settings(), translate.SandboxInput{Pod: p, Made: true})
	if err != nil || cfg.Linux.Sysctls["kernel.sem"] != "1" {
		t.Errorf("have %v, %v", cfg, err)
	}
}
