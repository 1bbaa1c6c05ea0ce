package local

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The reason of a pod that failed is what its status says, as in `deckhand why`.
func TestReason(t *testing.T) {
	ended := func(code int32, reason, message string) v1.PodStatus {
		return v1.PodStatus{Phase: v1.PodFailed, ContainerStatuses: []v1.ContainerStatus{{Name: "web", State: v1.ContainerState{
			Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}}}}
	}
	rejected := []Wait{{Wait: pod.Wait{Code: pod.WaitRejected}, Text: "rejected by the node; nothing was created for it"}}
	starts := []Wait{{Wait: pod.Wait{Code: pod.WaitAction, Container: "web"}, Text: "is being started"}}
	for name, tc := range map[string]struct {
		status  v1.PodStatus
		waits   []Wait
		stopped bool
		want    string
	}{
		"waits":                {v1.PodStatus{Phase: v1.PodPending}, starts, false, "container web: is being started"},
		"rejected":             {v1.PodStatus{Phase: v1.PodFailed, Reason: "OutOfcpu", Message: "requested: 9000"}, rejected, false, "rejected by the node: OutOfcpu: requested: 9000"},
		"rejected, no message": {v1.PodStatus{Phase: v1.PodFailed}, rejected, false, "rejected by the node; nothing was created for it"},
		"never started":        {ended(128, "StartError", `exec: "/nope"`), nil, false, `container web ended with exit code 128 (StartError): exec: "/nope"`},
		"only a code":          {ended(3, "Error", ""), nil, false, ""},
		"failed and is ending": {ended(3, "Error", "no disk"), starts, false, "container web ended with exit code 3 (Error): no disk; container web: is being started"},
		"stopped by a person":  {ended(3, "Error", "no disk"), nil, true, ""},
		"completed":            {v1.PodStatus{Phase: v1.PodSucceeded}, nil, false, ""},
	} {
		v := PodView{Pod: &v1.Pod{Status: tc.status}, Waits: tc.waits, Stopped: tc.stopped}
		if got := v.Reason(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}
