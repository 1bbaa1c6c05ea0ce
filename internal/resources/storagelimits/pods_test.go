package storagelimits

import (
	"fmt"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// TestPodsAreMeasuredWhileManifestsChange: each is told of as it was wanted when it was looked up.
func TestPodsAreMeasuredWhileManifestsChange(t *testing.T) {
	merger, seen := desired.New(logr.Discard(), pod.SourceFile), observed.New(nil, observed.Options{Wake: func(types.UID) {}, Log: logr.Discard()})
	n := Node{
		Desired: merger, Allocations: allocation.New(allocation.Config{}), Volumes: manager.New(manager.Config{RootDir: t.TempDir()}, logr.Discard()), Observed: seen,
		Ended: func(types.UID) bool { return false },
	}
	there := desired.Report{Source: pod.SourceFile}
	for i := range 200 {
		name := fmt.Sprint("web", i)
		seen.ContainerCreated(types.UID(name), name, "default", pod.Container{ID: name, Name: "main", State: pod.ContainerRunning})
		web := &pod.Desired{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Annotations: map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)}}}, Source: pod.SourceFile}
		there.Claims = append(there.Claims, desired.Claim{Desired: web, Document: i + 1})
	}
	merger.Report(there)
	if list := n.Pods(); len(list) != len(there.Claims) {
		t.Fatalf("%d pods are measured", len(list))
	}
	n.InCluster = true
	if list := n.Pods(); len(list) > 0 {
		t.Fatalf("%d static pods of a cluster are measured", len(list))
	}
	n.InCluster = false
	enough := make(chan struct{})
	var edits sync.WaitGroup
	edits.Go(func() {
		for {
			select {
			case <-enough:
				return
			default:
				merger.Report(desired.Report{Source: pod.SourceFile})
				merger.Report(there)
			}
		}
	})
	for range 1_000 {
		for _, p := range n.Pods() {
			if p.Pod == nil {
				t.Error("a pod is measured that isn't known")
			}
		}
		if t.Failed() {
			break
		}
	}
	close(enough)
	edits.Wait()
}

type runtimeOf map[types.UID]*pod.Observed

func (r runtimeOf) Get(uid types.UID) *pod.Observed { return r[uid] }

// TestPodsThatWaitForARestart: one whose containers have ended counts until it has ended for good, and its sandbox is stopped.
func TestPodsThatWaitForARestart(t *testing.T) {
	merger, seen, claims := desired.New(logr.Discard(), pod.SourceFile), runtimeOf{}, []desired.Claim(nil)
	for name, sandbox := range map[string]pod.SandboxState{"waits": pod.SandboxReady, "over": pod.SandboxReady, "stopped": pod.SandboxNotReady} {
		uid := types.UID(name)
		seen[uid] = &pod.Observed{Sandboxes: []pod.Sandbox{{State: sandbox}}, Containers: []pod.Container{{Name: "c", State: pod.ContainerExited}}}
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}
		claims = append(claims, desired.Claim{Desired: &pod.Desired{Pod: p, Source: pod.SourceFile}})
	}
	merger.Report(desired.Report{Source: pod.SourceFile, Claims: claims})
	n := Node{Desired: merger, Observed: seen, Allocations: allocation.New(allocation.Config{}),
		Volumes: manager.New(manager.Config{RootDir: t.TempDir()}, logr.Discard()), Ended: func(uid types.UID) bool { return uid == "over" }}
	if list := n.Pods(); len(list) != 1 || list[0].Pod.Name != "waits" || list[0].Observed != seen["waits"] {
		t.Errorf("%d pods are measured: %+v", len(list), list)
	}
}
