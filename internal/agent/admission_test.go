package agent_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestFullNodeAfterARestart: as many pods as the node admits run; of those that came while no agent ran none is
// let in, whether the records of the others are there or lost, and no other one is touched.
func TestFullNodeAfterARestart(t *testing.T) {
	r := prepareRig(t, "maxPods: 20\n")
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	const spec = "  containers:\n  - {name: app, image: IMAGE}"
	var running []string
	for i := range 20 {
		name := fmt.Sprintf("m%02d", i)
		r.want(name, spec)
		running = append(running, name+"/app")
	}
	instances := func() (ids []string) {
		for _, c := range r.Containers() {
			ids = append(ids, c.Id)
		}
		slices.Sort(ids)
		return ids
	}
	r.up()
	r.await("the node is full", r.running(running...))
	for round := range 2 {
		before := instances()
		r.stop()
		if round == 1 {
			for _, file := range r.records("allocation") {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, name := range []string{"a", "z"} {
			r.want(fmt.Sprint(name, round), spec)
		}
		r.up()
		r.await("the new ones are rejected", func() string {
			rejected := 0
			for _, file := range r.records("kept") {
				if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(`"reason":"OutOfpods"`)) && bytes.Contains(text, []byte(`"terminal":"Failed"`)) {
					rejected++
				}
			}
			if want := 2 * (round + 1); rejected != want {
				return fmt.Sprintf("%d pods are rejected, want %d", rejected, want)
			}
			return ""
		})
		if now := instances(); !slices.Equal(now, before) {
			t.Fatalf("there were %v, and after the restart %v", before, now)
		}
	}
}

// TestRoomOfAPodThatHasEnded: a pod that comes as soon as another is told to have succeeded waits while that gives back what it holds.
func TestRoomOfAPodThatHasEnded(t *testing.T) {
	r := prepareRig(t, "maxPods: 1\n")
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	r.want("a", "  restartPolicy: Never\n  containers:\n  - {name: app, image: IMAGE}")
	r.up()
	r.await("it runs", r.running("a/app"))
	release := r.Hang("StopPodSandbox")
	defer release()
	if err := r.Exit(r.newest("a/app").Id, 0, "Completed"); err != nil {
		t.Fatal(err)
	}
	r.ended("a", v1.PodSucceeded, "")
	r.want("b", "  containers:\n  - {name: app, image: IMAGE}")
	r.waitsFor("b", "pods that are ending hold it")
	release()
	r.await("it runs", r.running("b/app"))
}

// records are the files of this kind that outlive the agent, one a pod.
func (r *rig) records(kind string) []string {
	r.t.Helper()
	files, err := filepath.Glob(r.path("root/checkpoints/pods/*/" + kind + ".json"))
	if err != nil {
		r.t.Fatal(err)
	}
	return files
}
