package probe

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const second = time.Second

// rig is a manager with everything around it scripted and recorded.
type rig struct {
	*Manager
	t     *testing.T
	start time.Time
	stop  func()

	mu sync.Mutex
	// answer is what tries come to; nil answers with success at once.
	answer func(context.Context, try) handler.Outcome
	tries  []try
	count  map[pod.Probe]int
	events []pod.Event
	wakes  []time.Duration
	meter  []string
}

// try is one call of the handler.
type try struct {
	handler.Target
	kind pod.ProbeKind
	at   time.Duration
	// n counts the tries of this probe from 1.
	n int
}

func (x try) key() pod.Probe { return pod.Probe{Container: x.Container.Name, ID: x.ID, Kind: x.kind} }

// withRig runs body beside a running manager, in virtual time, and ends it.
func withRig(t *testing.T, o Options, body func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, o)
		defer r.stop()
		body(r)
	})
}

// newRig has a manager running; stop ends it.
func newRig(t *testing.T, o Options) *rig {
	r := &rig{t: t, start: time.Now(), count: map[pod.Probe]int{}}
	o.Handler, o.Recorder, o.Meter, o.Wake = r, r, r, r.woken
	if o.Spread == nil {
		o.Spread = func(p time.Duration) time.Duration { return p / 2 }
	}
	o.Log = testr.New(t)
	r.Manager = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait()
	return r
}

func (r *rig) Probe(ctx context.Context, t handler.Target, p *v1.Probe) handler.Outcome {
	x := try{Target: t, at: time.Since(r.start)}
	for _, kind := range []pod.ProbeKind{pod.ProbeStartup, pod.ProbeLiveness, pod.ProbeReadiness} {
		if specOf(t.Container, kind) == p {
			x.kind = kind
		}
	}
	r.mu.Lock()
	r.count[x.key()]++
	x.n = r.count[x.key()]
	r.tries = append(r.tries, x)
	answer := r.answer
	r.mu.Unlock()
	if answer == nil {
		return handler.Outcome{State: handler.Success}
	}
	return answer(ctx, x)
}

func (r *rig) Event(_ *v1.Pod, e pod.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *rig) Tried(_ *v1.Pod, container string, kind pod.ProbeKind, state handler.State, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := map[handler.State]string{handler.Success: "success", handler.Failure: "failure", handler.Warning: "warning", handler.Unknown: "unknown"}[state]
	r.meter = append(r.meter, container+" "+string(kind)+" "+name+" "+took.String())
}

func (r *rig) Dropped(_ *v1.Pod, container string, kind pod.ProbeKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meter = append(r.meter, container+" "+string(kind)+" dropped")
}

func (r *rig) woken(types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes = append(r.wakes, time.Since(r.start))
}

// answers sets what tries come to from now on.
func (r *rig) answers(f func(context.Context, try) handler.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// times returns when the probe was tried.
func (r *rig) times(key pod.Probe) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var at []time.Duration
	for _, x := range r.tries {
		if x.key() == key {
			at = append(at, x.at)
		}
	}
	return at
}

func (r *rig) wantTimes(key pod.Probe, want ...time.Duration) {
	r.t.Helper()
	if got := r.times(key); !slices.Equal(got, want) {
		r.t.Errorf("%v was tried at %v, want %v", key, got, want)
	}
}

// until lets virtual time pass up to at since the rig's start, and everything due by then happen.
func (r *rig) until(at time.Duration) {
	time.Sleep(at - time.Since(r.start))
	synctest.Wait()
}

// okays returns the results by kind.
func (r *rig) okays(uid types.UID) map[pod.ProbeKind]bool {
	got := map[pod.ProbeKind]bool{}
	for _, x := range r.Results(uid) {
		got[x.Kind] = x.OK
	}
	return got
}

// httpProbe has the given period and thresholds of 1, and a timeout of 1 s.
func httpProbe(period int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}},
		PeriodSeconds: period, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 1,
	}
}

func execProbe(period int32) *v1.Probe {
	p := httpProbe(period)
	p.ProbeHandler = v1.ProbeHandler{Exec: &v1.ExecAction{}}
	return p
}

// podOf makes a pod of one container "c" for each of the given.
func podOf(uid types.UID, containers ...v1.Container) *v1.Pod {
	for i := range containers {
		if containers[i].Name == "" {
			containers[i].Name = "c"
		}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p-" + string(uid), Namespace: "default", UID: uid},
		Spec:       v1.PodSpec{Containers: containers},
	}
}

// ran is an observation of instance id of container "c", started at the given time.
func ran(id string, at time.Time) *pod.Observed {
	return &pod.Observed{Containers: []pod.Container{{ID: id, Name: "c", State: pod.ContainerRunning, StartedAt: at.Round(0)}}}
}

func probeOf(id string, kind pod.ProbeKind) pod.Probe {
	return pod.Probe{Container: "c", ID: id, Kind: kind}
}

var (
	startup1   = probeOf("id1", pod.ProbeStartup)
	liveness1  = probeOf("id1", pod.ProbeLiveness)
	readiness1 = probeOf("id1", pod.ProbeReadiness)
)
