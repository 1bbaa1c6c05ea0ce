package lifecycle_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
)

// The table of the documentation's example (Node shutdowns, "Pod Priority based graceful node shutdown"), in any order.
func TestNodeShutdownGraceByPriority(t *testing.T) {
	periods := []v1beta1.ShutdownGracePeriodByPodPriority{
		{Priority: 1000, ShutdownGracePeriodSeconds: 120}, {Priority: 100000, ShutdownGracePeriodSeconds: 10},
		{Priority: 0, ShutdownGracePeriodSeconds: 60}, {Priority: 10000, ShutdownGracePeriodSeconds: 180},
	}
	for priority, want := range map[int32]time.Duration{
		2000001000: 10, 100000: 10, 99999: 180, 10000: 180, 9999: 120, 1000: 120, 999: 60, 0: 60, -5: 60,
	} {
		p := &v1.Pod{Spec: v1.PodSpec{Priority: ptr.To(priority)}}
		if got := lifecycle.NodeShutdown(p, time.Now(), periods).Grace; got == nil || *got != want*time.Second {
			t.Errorf("priority %d has %v, want %ds", priority, got, want)
		}
	}
	if got := lifecycle.NodeShutdown(&v1.Pod{}, time.Now(), periods).Grace; got == nil || *got != time.Minute {
		t.Errorf("a pod without priority has %v, want 60s", got)
	}
	if got := lifecycle.NodeShutdown(&v1.Pod{}, time.Now(), nil).Grace; got != nil {
		t.Errorf("without periods a pod has %s, want its own grace", got)
	}
}
