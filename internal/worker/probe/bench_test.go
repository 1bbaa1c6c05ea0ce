package probe

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// nothing is everything around a manager, at no cost.
type nothing struct{ tries atomic.Int64 }

func (n *nothing) Probe(context.Context, handler.Target, *v1.Probe) handler.Outcome {
	n.tries.Add(1)
	return handler.Outcome{State: handler.Success}
}
func (*nothing) Event(*v1.Pod, pod.Event)                                           {}
func (*nothing) Tried(*v1.Pod, string, pod.ProbeKind, handler.State, time.Duration) {}
func (*nothing) Dropped(*v1.Pod, string, pod.ProbeKind)                             {}
func (*nothing) wake(types.UID)                                                     {}
func (n *nothing) options() Options {
	return Options{Handler: n, Recorder: n, Meter: n, Wake: n.wake, Log: logr.Discard()}
}

// thousand wants one http probe with a period of 1 s in each of 1,000 pods, spread.
func thousand(m *Manager) {
	for i := range 1000 {
		uid := types.UID(fmt.Sprint(i))
		m.Want(uid, podOf(uid, v1.Container{ReadinessProbe: httpProbe(1)}), ran("id1", time.Now().Add(-time.Hour)), "", []pod.Probe{readiness1})
	}
}

// BenchmarkTry measures one try with all its scheduling: heap, assignment, result. It
// moves the manager's time on instead of waiting for it.
func BenchmarkTry(b *testing.B) {
	n := &nothing{}
	m := New(n.options())
	thousand(m)
	ctx, cancel := context.WithCancel(b.Context())
	defer m.workers.Wait()
	defer cancel()
	defer m.stopWorkers()
	b.ReportAllocs()
	b.ResetTimer()
	for n.tries.Load() < int64(b.N) {
		// In each tenth of a second, about a hundred are due.
		m.mu.Lock()
		m.born = m.born.Add(-100 * time.Millisecond)
		m.mu.Unlock()
		m.turn(ctx)
		for underWay(m) {
			runtime.Gosched()
		}
	}
}

func underWay(m *Manager) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.network.busy.len() > 0
}

// BenchmarkThousandASecond tells how much of one CPU 1,000 probes a second take beside
// what the handler does, timers and switches between goroutines included. An op is a second.
func BenchmarkThousandASecond(b *testing.B) {
	n := &nothing{}
	m := New(n.options())
	thousand(m)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	time.Sleep(time.Second)
	before, tries := cpu(b), n.tries.Load()
	seconds := 0
	for b.Loop() {
		time.Sleep(time.Second)
		seconds++
	}
	b.ReportMetric((cpu(b)-before).Seconds()/float64(seconds)*100, "%cpu")
	b.ReportMetric(float64(n.tries.Load()-tries)/float64(seconds), "tries/op")
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
