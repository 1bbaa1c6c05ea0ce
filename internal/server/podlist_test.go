package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// somePods are pods about as large as those in use.
func somePods(n int) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i := range out {
		name := fmt.Sprintf("pod-%d-node", i)
		now := metav1.NewTime(time.Unix(1700000000, 0))
		out[i] = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("%032d", i)), CreationTimestamp: now,
				Labels:      map[string]string{"app": "web", "tier": "front"},
				Annotations: map[string]string{"kubernetes.io/config.hash": fmt.Sprintf("%032d", i), "kubernetes.io/config.source": "file"},
			},
			Spec: v1.PodSpec{
				NodeName: "node",
				Volumes:  []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
				Containers: []v1.Container{{
					Name: "web", Image: "localhost/web:1", Args: []string{"-listen", ":8080"},
					Env:          []v1.EnvVar{{Name: "A", Value: "b"}},
					Resources:    v1.ResourceRequirements{Limits: v1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
					VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}},
			},
			Status: v1.PodStatus{
				Phase: v1.PodRunning, PodIP: "10.72.0.9", HostIP: "192.0.2.7", StartTime: &now,
				Conditions: []v1.PodCondition{
					{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: now},
					{Type: v1.PodInitialized, Status: v1.ConditionTrue, LastTransitionTime: now},
					{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: now},
					{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now},
				},
				ContainerStatuses: []v1.ContainerStatus{{
					Name: "web", Ready: true, Image: "localhost/web:1", ContainerID: fmt.Sprintf("containerd://%064d", i),
					State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
				}},
			},
		}
	}
	return out
}

func list(t *testing.T, write func(io.Writer, []*v1.Pod) error, pods []*v1.Pod) v1.PodList {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf, pods); err != nil {
		t.Fatal(err)
	}
	var got v1.PodList
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, buf.Bytes())
	}
	return got
}

func TestTextsFollowThePods(t *testing.T) {
	texts := &podTexts{texts: map[*v1.Pod]podText{}}
	pods := somePods(3)
	if got := list(t, texts.write, pods); len(got.Items) != 3 {
		t.Fatalf("%d items", len(got.Items))
	}
	unchanged := &texts.texts[pods[0]].json[0]

	changed := pods[1].DeepCopy()
	changed.Status.Phase = v1.PodFailed
	got := list(t, texts.write, []*v1.Pod{pods[0], changed})
	if len(got.Items) != 2 || got.Items[1].Status.Phase != v1.PodFailed {
		t.Errorf("got %d items, the second %s", len(got.Items), got.Items[1].Status.Phase)
	}
	if &texts.texts[pods[0]].json[0] != unchanged {
		t.Error("a pod that hasn't changed was written out again")
	}
	if len(texts.texts) != 2 {
		t.Errorf("%d pods are remembered, want 2: those of the last list", len(texts.texts))
	}
	if got := list(t, texts.write, nil); len(got.Items) != 0 || len(texts.texts) != 0 {
		t.Error("an empty list leaves something behind")
	}
}

func TestConcurrentLists(t *testing.T) {
	var cache podCache
	pods := somePods(20)
	var want bytes.Buffer
	if err := writeList(&want, pods); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				var got bytes.Buffer
				if err := cache.write(&got, pods); err != nil || !bytes.Equal(want.Bytes(), got.Bytes()) {
					t.Errorf("a list differs: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// A client that takes its time neither has others wait nor everything remembered once more.
func TestSlowClientHoldsTheOnlyCache(t *testing.T) {
	var cache podCache
	pods := somePods(2)
	from, to := io.Pipe()
	slow := make(chan error, 1)
	go func() { slow <- cache.write(to, pods) }()
	if _, err := from.Read(make([]byte, 1)); err != nil { // it has begun, and waits
		t.Fatal(err)
	}
	if got := list(t, cache.write, pods); len(got.Items) != 2 {
		t.Errorf("%d items", len(got.Items))
	}
	if cache.pool.Get() != nil {
		t.Error("a second request remembered pods of its own")
	}
	from.Close()
	if err := <-slow; err == nil {
		t.Error("the slow client's end is no error")
	}
}

type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errors.New("client is gone")
	}
	return len(p), nil
}

func TestWriteErrorsEndTheList(t *testing.T) {
	for n := range 5 {
		w := &failingWriter{left: n}
		if err := new(podCache).write(w, somePods(2)); err == nil {
			t.Errorf("no error after %d writes", n)
		}
	}
}

// Polling thousands of pods that don't change must leave hardly any garbage.
func TestUnchangedPodsCostNoGarbage(t *testing.T) {
	texts := &podTexts{texts: map[*v1.Pod]podText{}}
	pods := somePods(100)
	if n := testing.AllocsPerRun(10, func() {
		if err := texts.write(io.Discard, pods); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations for 100 unchanged pods", n)
	}
}

func BenchmarkPods2000(b *testing.B) {
	pods := somePods(2000)
	b.Run("unchanged", func(b *testing.B) {
		var cache podCache
		b.ReportAllocs()
		for b.Loop() {
			if err := cache.write(io.Discard, pods); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := writeList(io.Discard, pods); err != nil {
				b.Fatal(err)
			}
		}
	})
}
