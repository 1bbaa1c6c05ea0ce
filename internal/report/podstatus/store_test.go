package podstatus

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestDeletionTimestamp: a pod that has to end is shown with one; where its source has one, that is it.
func TestDeletionTimestamp(t *testing.T) {
	stopping := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	asked := metav1.NewTime(stopping.Add(time.Hour)) // another clock's
	for _, tc := range []struct {
		name  string
		own   *metav1.Time
		want  time.Time
		grace int64
	}{
		{"the source has none", nil, stopping, 30},
		{"the source has one", &asked, asked.Time, 5},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", DeletionTimestamp: tc.own}, Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](30)}}
		if tc.own != nil {
			p.DeletionGracePeriodSeconds = ptr.To[int64](5)
		}
		s := NewStore()
		s.Publish("u", pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{}, Stopping: true, StoppingWhy: "it is deleted", StoppingAt: stopping})
		shown := s.List()[0].Pod
		if !shown.DeletionTimestamp.Time.Equal(tc.want) || *shown.DeletionGracePeriodSeconds != tc.grace {
			t.Errorf("%s: deleted at %v within %d s", tc.name, shown.DeletionTimestamp, *shown.DeletionGracePeriodSeconds)
		}
	}
}
