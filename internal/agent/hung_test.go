package agent_test

import (
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// hangAll makes every call to the runtime hang, and every stream silent, until release is called.
func (r *rig) hangAll() (release func()) {
	var all []func()
	services := []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc}
	for _, service := range services {
		for _, m := range service.Methods {
			all = append(all, r.Hang(m.MethodName))
		}
		for _, s := range service.Streams {
			all = append(all, r.Hang(s.StreamName))
		}
	}
	return func() {
		for _, release := range all {
			release()
		}
	}
}

// footprint is what this process holds that could grow: the heap is in KiB.
type footprint struct{ goroutines, descriptors, heap int }

func measure(t *testing.T) footprint {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return footprint{runtime.NumGoroutine(), len(fds), int(m.HeapAlloc >> 10)}
}

// TestHungRuntime: no call to the runtime returns for as long as 40 of them time out one after the other, which takes
// longer than an hour with the default timeout of two minutes. The agent answers, reports the runtime once, loses no
// pod and holds no more than soon after the beginning. When the runtime answers again, failed actions are retried
// before their back-off ends.
func TestHungRuntime(t *testing.T) {
	const timeout = 100 * time.Millisecond
	r := newReloads(t, "runtimeRequestTimeout: "+timeout.String()+"\n")
	const hung = "The container runtime doesn't answer"
	var reported atomic.Int32
	r.log = funcr.New(func(_, args string) {
		if strings.Contains(args, hung) {
			reported.Add(1)
		}
	}, funcr.Options{})
	probed := "  terminationGracePeriodSeconds: 1\n  containers:\n" +
		"  - {name: main, image: IMAGE, readinessProbe: {periodSeconds: 1, exec: {command: [exit, '0']}}}\n"
	for name, spec := range map[string]string{"a": plainSpec, "goes": plainSpec, "probed": probed} {
		r.want(name, spec)
	}
	r.up()
	r.await("the pods run", r.running("a/main", "goes/main", "probed/main"))
	r.awaitPod("probed", ready)
	before := map[string]string{"a/main": r.newest("a/main").Id, "probed/main": r.newest("probed/main").Id}
	release := r.hangAll()
	defer release()
	begun := time.Now()
	r.unwant("goes")
	r.want("comes", plainSpec)
	r.waitsFor("comes", "FailedCreatePodSandBox")
	at := func(d time.Duration) { time.Sleep(time.Until(begun.Add(d))) } // nothing reports that a timeout has passed
	at(10 * timeout)
	early := measure(t)
	at(40 * timeout)
	late := measure(t)
	t.Logf("%+v, then %+v", early, late)
	if late.goroutines > early.goroutines+10 || late.descriptors > early.descriptors+5 || late.heap > early.heap+4<<10 {
		t.Errorf("the agent holds %+v, and later %+v", early, late)
	}
	if n := reported.Load(); n != 1 {
		t.Errorf("%d lines report the runtime", n)
	}
	node, err := r.client.Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Conditions {
		down := c.Status == v1.ConditionFalse && strings.Contains(c.Message, "container runtime is down")
		if c.Type == v1.NodeReady && !down {
			t.Errorf("the node reports %+v", c)
		}
	}
	for name := range before {
		r.awaitPod(strings.TrimSuffix(name, "/main"), func(v local.PodView) string {
			if v.Pod.Status.Phase != v1.PodRunning {
				return "it is " + string(v.Pod.Status.Phase)
			}
			return ""
		})
	}
	var next time.Time
	r.awaitPod("comes", func(v local.PodView) string { next = v.Waits[0].Next; return "" })
	release()
	r.await("what waited goes on", r.running("a/main", "probed/main", "comes/main"))
	if now := time.Now(); !now.Before(next) {
		t.Errorf("that takes until %s, the back-off until %s", now, next)
	}
	r.await("the pod that was removed is gone", r.nothing("goes"))
	for name, id := range before {
		if r.newest(name).Id != id {
			t.Errorf("%s was restarted: %s", name, r.describe())
		}
	}
}
