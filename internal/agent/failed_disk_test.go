package agent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/agent"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// TestFailedDisk: a root directory whose file system refuses writes after an error is the reason why the node isn't ready.
// Its pods run on, no pod starts, and one whose manifest goes is stopped.
func TestFailedDisk(t *testing.T) {
	r := newRig(t)
	if err := os.Mkdir(r.path("root"), 0o755); err != nil {
		t.Fatal(err)
	}
	mountExt4(t, r.path("root"), 64<<20)
	disk, err := mounts.Containing(r.path("root"))
	if err != nil {
		t.Fatal(err)
	}
	const spec = "  terminationGracePeriodSeconds: 1\n  containers:\n  - {name: main, image: IMAGE}\n"
	r.up()
	r.want("a", spec)
	r.want("c", spec)
	r.await("the pods run", r.running("a/main", "c/main"))
	before := r.newest("a/main").Id
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(disk.Source), "trigger_fs_error"), []byte("test"), 0); err != nil {
		t.Fatal(err)
	}
	r.want("b", spec)
	client := r.client()
	r.await("the node isn't ready", func() string {
		n, err := client.Node(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range n.Conditions {
			if c.Type == v1.NodeReady {
				if c.Status == v1.ConditionFalse && c.Reason == "StorageFailed" && strings.Contains(c.Message, "read-only file system") {
					return ""
				}
				return fmt.Sprintf("%+v", c)
			}
		}
		return "no condition"
	})
	r.await("a pod waits for the disk", func() string {
		s, err := client.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range s.Pods {
			for _, w := range p.Waits {
				if p.Pod.Name == "b-n" && w.Disk && strings.Contains(w.Message, "read-only file system") {
					return ""
				}
			}
		}
		return fmt.Sprintf("%+v", s.Pods[len(s.Pods)-1].Waits)
	})
	if p := r.running("a/main", "c/main")(); p != "" || r.newest("a/main").Id != before {
		t.Errorf("the pod that ran: %s", p)
	}
	r.unwant("a")
	r.await("a pod is stopped", r.running("c/main"))
	list, err := client.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var failed []local.Event
	for _, e := range list {
		if e.Reason == string(pod.ReasonStorageFailed) {
			failed = append(failed, e)
		}
	}
	if len(failed) != 1 || failed[0].Count != 1 {
		t.Errorf("events %+v", failed)
	}
	// The next agent can't start, and says why. One that only stops pods does so.
	r.stop()
	run := func(o agent.Options) error {
		a, err := agent.NewBetween(r.cfg, o, r.between)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return a.Run(ctx)
	}
	if err := run(r.options); err == nil || !strings.Contains(err.Error(), r.path("root")) || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("the next agent: %v", err)
	}
	if p := r.running("c/main")(); p != "" {
		t.Errorf("before the stop of all: %s", p)
	}
	stops := r.options
	stops.StopAll = true
	if err := run(stops); !errors.Is(err, agent.ErrAllStopped) {
		t.Errorf("an agent that only stops pods: %v", err)
	}
	if p := r.running()(); p != "" {
		t.Errorf("after the stop of all: %s", p)
	}
}
