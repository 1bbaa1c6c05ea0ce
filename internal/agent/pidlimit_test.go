package agent_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// threadsEnv, in the environment, has the mortal agent make threads ahead, as the command does.
const threadsEnv = "DECKHAND_TEST_THREADS"

// TestAgentAtItsLimitOfProcesses: an agent whose group is at pids.max, or close to it, lives, answers, and starts and stops pods
// while a file system that hangs blocks some of its threads. A pod that waits for processes gets one event.
func TestAgentAtItsLimitOfProcesses(t *testing.T) {
	parent := "/sys/fs/cgroup/pids"
	if unix.Access(parent, unix.F_OK) != nil {
		parent = "/sys/fs/cgroup"
		enabled, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
		if err != nil || !slices.Contains(strings.Fields(string(enabled)), "pids") {
			t.Fatalf("there is no cgroup controller pids: %q, %v", enabled, err)
		}
	}
	t.Setenv(threadsEnv, "yes")
	for _, spare := range []int{0, 1, 3} {
		t.Run(fmt.Sprint("room for ", spare), func(t *testing.T) {
			group := filepath.Join(parent, fmt.Sprintf("deckhand-test-agent-%d-%d", os.Getpid(), spare))
			if err := os.Mkdir(group, 0o755); err != nil {
				t.Fatal(err)
			}
			hung := t.TempDir()
			server := mounttest.Mount(t, hung)
			w := newWorld(t)
			defer func() { // before the test removes the directories
				server.Resume()
				w.kill("the end")
				w.await("the group is empty", func() string {
					if err := os.Remove(group); err != nil {
						return err.Error()
					}
					return ""
				})
			}()
			write := func(file string, n int) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(n)), 0); err != nil {
					t.Fatal(err)
				}
			}
			const spec = "  containers:\n  - {name: main, image: IMAGE}\n"
			w.want("a", spec)
			w.start()
			w.await("the first pod runs", w.running("a/main"))
			client, pid := w.client(), w.pid()
			write("cgroup.procs", pid)
			text, err := os.ReadFile(filepath.Join(group, "pids.current"))
			if err != nil {
				t.Fatal(err)
			}
			current, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			write("pids.max", current+spare)
			server.Hang()
			for i := range 12 { // each blocks a thread
				w.want(fmt.Sprint("hung", i), "  containers:\n  - {name: main, image: IMAGE, volumeMounts: [{name: v, mountPath: /v}]}\n"+
					"  volumes: [{name: v, hostPath: {path: "+hung+"/file, type: File}}]\n")
			}
			server.AwaitWaiting(t, 1)
			w.want("b", spec)
			var calls sync.WaitGroup
			for range 50 {
				calls.Go(func() {
					for range 20 {
						if _, err := client.Snapshot(t.Context()); err != nil {
							t.Errorf("no answer: %v", err)
							return
						}
					}
				})
			}
			calls.Wait()
			w.await("a pod is started", w.running("a/main", "b/main"))
			w.unwant("a")
			w.await("a pod is stopped", w.nothing("a"))
			const refusal = "fork/exec /usr/bin/containerd-shim-runc-v2: resource temporarily unavailable"
			w.FailNext("RunPodSandbox", math.MaxInt, status.Error(codes.Unknown, refusal))
			w.want("c", spec)
			w.awaitPod("c", func(v local.PodView) string {
				for _, wait := range v.Waits {
					if wait.For == pod.WaitForProcesses && wait.Attempts >= 3 && strings.Contains(wait.Message, refusal) {
						return ""
					}
				}
				return fmt.Sprintf("%+v", v.Waits)
			})
			time.Sleep(time.Second) // whatever else it does meanwhile
			if now := w.pid(); now != pid {
				t.Errorf("the agent has ended: %s", w.broken)
			}
			list, err := client.Events(t.Context())
			reported := 0
			for _, e := range list {
				if e.Object == "pod/c-n" && strings.Contains(e.Message, refusal) {
					reported++ // an event that recurs is counted up
				}
			}
			if err != nil || reported != 1 {
				t.Errorf("%d events report the runtime's error, %v: %v", reported, err, list)
			}
			events, err := os.ReadFile(filepath.Join(group, "pids.events"))
			t.Logf("with %d threads and room for %d: %s, %v", current, spare, strings.TrimSpace(string(events)), err)
		})
	}
}
