package transcript

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
)

// BenchmarkRecord records a pod's start, the way it is at each of 2,000 pods. It
// reports the cost per decision and what an idle pod holds on to afterwards.
func BenchmarkRecord(b *testing.B) {
	w := newWorld(examplePod(b))
	w.run(b)
	NewRecorder(1<<16).Record(w.turns[0].in, w.turns[0].d) // makes the formats
	kept := make([]*Recorder, 0, 256)
	b.ReportAllocs()
	begun := cpuTime(b)
	for b.Loop() {
		r := NewRecorder(64 << 10)
		for i := range w.turns {
			r.Record(w.turns[i].in, w.turns[i].d)
		}
		if len(kept) < cap(kept) {
			kept = append(kept, r)
		}
	}
	b.ReportMetric(float64(cpuTime(b)-begun)/float64(b.N*len(w.turns)), "cpu-ns/decision")
	b.ReportMetric(float64(kept[0].size()), "B/pod")
	runtime.KeepAlive(kept)
}

// BenchmarkRecordIdle records decisions that bring nothing new.
func BenchmarkRecordIdle(b *testing.B) {
	w := newWorld(examplePod(b))
	w.run(b)
	w.decide()
	r := NewRecorder(64 << 10)
	for i := range w.turns {
		r.Record(w.turns[i].in, w.turns[i].d)
	}
	last := w.turns[len(w.turns)-1]
	b.ReportAllocs()
	for b.Loop() {
		r.Record(last.in, last.d)
	}
}

// BenchmarkDecideIdle decides for a running pod of which nothing has changed.
func BenchmarkDecideIdle(b *testing.B) {
	w := newWorld(examplePod(b))
	w.run(b)
	w.decide()
	last := w.turns[len(w.turns)-1]
	if len(last.d.Actions) > 0 || last.d.Status == nil {
		b.Fatal("the pod isn't idle")
	}
	last.in.Memory = last.d.Memory
	b.ReportAllocs()
	for b.Loop() {
		lifecycle.Decide(last.in)
	}
}

// cpuTime is what the process has used: unlike the time on the clock it doesn't
// depend on what else the machine does.
func cpuTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
