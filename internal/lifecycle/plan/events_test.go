package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestImageFailureEvents: the events for an image that a container can't get are the kubelet's, with the image's name
// once.
func TestImageFailureEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		failure pod.Failure
		want    []string
	}{
		"pull": {
			pod.Failure{Reason: "ErrImagePull", Message: `failed to pull image "a:1": no such host`},
			[]string{`Warning Failed: Failed to pull image "a:1": no such host`, "Warning Failed: Error: ErrImagePull"},
		},
		"queue": {
			pod.Failure{Reason: "ErrImagePull", Message: "pull QPS exceeded"},
			[]string{`Warning Failed: Failed to pull image "a:1": pull QPS exceeded`, "Warning Failed: Error: ErrImagePull"},
		},
		"image of a volume": {
			pod.Failure{Reason: "ErrImagePull", Message: "pull QPS exceeded", Image: "v:1"},
			[]string{`Warning Failed: Failed to pull image "v:1": pull QPS exceeded`, "Warning Failed: Error: ErrImagePull"},
		},
		"volume": {
			pod.Failure{Reason: "FailedMount", Message: "no such ConfigMap"},
			[]string{"Warning FailedMount: no such ConfigMap"},
		},
		"volume that waits as always": {
			pod.Failure{Reason: "FailedMount", Message: "it isn't attached yet", Expected: true}, nil,
		},
		"device": {
			pod.Failure{Reason: "FailedMapVolume", Message: "it is a block device"},
			[]string{"Warning FailedMapVolume: it is a block device"},
		},
		"back-off": {
			pod.Failure{Reason: "ImagePullBackOff", Message: "no such host"},
			[]string{`Normal BackOff: Back-off pulling image "a:1"`, "Warning Failed: Error: ImagePullBackOff"},
		},
		"never": {
			pod.Failure{Reason: "ErrImageNeverPull", Message: "absent"},
			[]string{"Warning ErrImageNeverPull: absent", "Warning Failed: Error: ErrImageNeverPull"},
		},
		"name": {
			pod.Failure{Reason: "InvalidImageName", Message: "upper case"},
			[]string{"Warning InspectFailed: upper case", "Warning Failed: Error: InvalidImageName"},
		},
		"inspect": {
			pod.Failure{Reason: "ImageInspectError", Message: "runtime is down"},
			[]string{"Warning InspectFailed: runtime is down", "Warning Failed: Error: ImageInspectError"},
		},
	} {
		p := plan.New(time.Unix(1, 0), nil, nil, nil, plan.RetryTriggers{})
		a := pod.Action{Kind: pod.EnsureImage, Container: "c", Image: "a:1"}
		p.RecordFailure(pod.Result{Action: a, Failure: &tc.failure})
		var got []string
		for _, e := range p.Events {
			got = append(got, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Message))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
