//go:build numa

package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// TestClockIsSet sets the clock of the machine, which has to be test/numa's. Meanwhile a pod is in back-off, one is
// probed, one has a deadline, and one is evicted after a grace period: the steps change none of these times, and the
// node has an event for each step.
func TestClockIsSet(t *testing.T) {
	r := newRig(t)
	r.configure("evictionSoft: {nodefs.available: 40Mi}\nevictionSoftGracePeriod: {nodefs.available: 9s}\n")
	root := r.path("root")
	if err := errors.Join(os.Mkdir(root, 0o755), unix.Mount("deckhand-test", root, "tmpfs", 0, "size=64m,mode=755")); err != nil {
		t.Fatal(err)
	}
	r.SetExec(func(*runtimeapi.ContainerStatus, []string) memcri.ExecResult { return memcri.ExecResult{} })
	r.up()
	const always = "  terminationGracePeriodSeconds: 20\n  containers:\n  - {name: web, image: IMAGE"
	r.want("crash", always+"}\n")
	r.want("probed", always+", livenessProbe: {exec: {command: [check]}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 1}}\n")
	r.want("deadline", "  activeDeadlineSeconds: 600\n"+always+"}\n")
	r.want("hog", "  volumes: [{name: data, emptyDir: {}}]\n"+always+", volumeMounts: [{name: data, mountPath: /data}]}\n")
	r.await("all run", r.running("crash/web", "probed/web", "deadline/web", "hog/web"))
	volume, err := filepath.Glob(filepath.Join(root, "pods/*/volumes/*/data"))
	if err != nil || len(volume) != 1 {
		t.Fatal(volume, err)
	}
	filled := time.Now()
	if err := os.WriteFile(filepath.Join(volume[0], "file"), make([]byte, 30<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	r.restart() // it looks at the disk at once
	r.client()
	crash := func() {
		t.Helper()
		if err := r.Exit(r.newest("crash/web").Id, 1, "Error"); err != nil {
			t.Fatal(err)
		}
	}
	crash()
	r.await("restarted at once", func() string {
		if c := r.newest("crash/web"); c.Metadata.Attempt != 1 {
			return "it hasn't"
		}
		if c := r.newest("crash/web"); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
			return "it doesn't run"
		}
		return ""
	})
	crash()
	crashed := time.Now() // has a monotonic reading
	begun := crashed.Round(0)
	for i, to := range []time.Time{begun.Add(time.Hour), begun.Add(-time.Hour), time.Unix(86400, 0), time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), begun} {
		time.Sleep(time.Second)
		tv := unix.NsecToTimeval(to.UnixNano())
		if err := unix.Settimeofday(&tv); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if c := r.newest("crash/web"); c.Metadata.Attempt != 1 && time.Since(crashed) < 9*time.Second {
			t.Fatalf("step %d ended the back-off after %v", i, time.Since(crashed))
		}
		if c := r.newest("hog/web"); c.State != runtimeapi.ContainerState_CONTAINER_RUNNING && time.Since(filled) < 8*time.Second {
			t.Fatalf("step %d ended the grace period of the eviction after %v", i, time.Since(filled))
		}
	}
	r.await("evicted after the grace period", func() string {
		if r.newest("hog/web").State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return "it runs"
		}
		return ""
	})
	if took := time.Since(filled); took > 35*time.Second {
		t.Errorf("the eviction after 9 s took %v", took)
	}
	r.await("restarted after the back-off", r.running("crash/web", "probed/web", "deadline/web"))
	if took := time.Since(crashed); took < 9*time.Second || took > 25*time.Second {
		t.Errorf("the back-off of 10 s took %v", took)
	}
	for name, attempt := range map[string]uint32{"crash/web": 2, "probed/web": 0, "deadline/web": 0} {
		if c := r.newest(name); c.Metadata.Attempt != attempt {
			t.Errorf("the newest of %s is %d, want %d", name, c.Metadata.Attempt, attempt)
		}
	}
	list, err := local.NewClient(local.SocketPath(r.path("root"))).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var steps []string
	for _, e := range list {
		if e.Object == "node/n" && e.Reason == string(pod.ReasonClockStepped) {
			what, _, _ := strings.Cut(e.Message, ",")
			steps = append(steps, what)
		}
	}
	forward, back := 0, 0
	for _, s := range steps {
		forward += strings.Count(s, " forward by ")
		back += strings.Count(s, " back by ")
	}
	if len(steps) != 5 || forward != 2 || back != 3 {
		t.Errorf("the events of steps are %q", steps)
	}
}
