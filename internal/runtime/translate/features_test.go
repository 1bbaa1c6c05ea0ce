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

func TestUsersThatTheRuntimeCannotGive(t *testing.T) {
	able := &translate.Features{Handlers: map[string]translate.HandlerFeatures{"": {UserNamespaces: true}, "vm": {}}}
	own := func(p *v1.Pod) { p.Spec.HostUsers = ptr.To(false) }
	for _, tc := range []struct {
		name     string
		features *translate.Features
		handler  string
		change   func(*v1.Pod)
		want     *pod.Failure // Message is part of it
	}{
		{"plain, runtime unknown", nil, "", func(*v1.Pod) {}, nil},
		{"own users", able, "", own, nil},
		{"own users, runtime unknown", nil, "", own, &pod.Failure{Reason: "FailedCreatePodSandBox", Message: "hasn't reported yet"}},
		{"own users, old runtime", &translate.Features{}, "", own,
			&pod.Failure{Reason: "FailedCreatePodSandBox", Permanent: true, Message: "can't set `spec.hostUsers: false`, runtime does not support user namespaces"}},
		{"own users, other handler", able, "vm", own,
			&pod.Failure{Reason: "FailedCreatePodSandBox", Permanent: true, Message: `runtime handler "vm" does not support user namespaces`}},
	} {
		p := webPod()
		tc.change(p)
		err := tc.features.CheckUsers(tc.handler, p)
		var f *pod.Failure
		switch {
		case tc.want == nil:
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		case !errors.As(err, &f) || f.Reason != tc.want.Reason || f.Permanent != tc.want.Permanent || f.Rejected || !strings.Contains(f.Message, tc.want.Message):
			t.Errorf("%s: unexpected error: %v", tc.name, err)
		}
	}
}
