package agent_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// reloads is a rig whose agent is reported a changed configuration by a signal.
type reloads struct {
	*rig
	hangUp    chan os.Signal
	client    *local.Client
	verbosity atomic.Uint32
}

func newReloads(t *testing.T, settings string) *reloads {
	t.Helper()
	r := &reloads{rig: prepareRig(t, settings), hangUp: make(chan os.Signal, 1)}
	r.client = local.NewClient(local.SocketPath(r.path("root")))
	r.options.HangUp = r.hangUp
	r.options.SetVerbosity = func(v uint32, _ string) error { r.verbosity.Store(v); return nil }
	r.options.Reread = func(context.Context, *config.Config) (*config.Config, error) { return loadConfig(r.dir) }
	if err := r.Start(r.path("cri.sock")); err != nil {
		t.Fatal(err)
	}
	return r
}

// reload has a configuration applied, and waits for the event that says what came of it.
func (r *reloads) reload(settings, eventType, reason, says string) {
	r.t.Helper()
	r.write(settings)
	r.hangUp <- syscall.SIGHUP
	r.await("reloaded", func() string {
		list, err := r.client.Events(r.t.Context())
		if err != nil {
			return err.Error()
		}
		for _, e := range list {
			if e.Reason == reason && string(e.Type) == eventType && e.Object == "node/n" && strings.Contains(e.Message, says) {
				return ""
			}
		}
		return fmt.Sprintf("there is no event %s with %q among %v", reason, says, list)
	})
}

// Everything that can be reloaded gets to where it acts.
func TestReload(t *testing.T) {
	t.Parallel()
	memory := capacityOf(t) / 10
	before := fmt.Sprintf(`serializeImagePulls: true
imageMinimumGCAge: 1ms
imageGCHighThresholdPercent: 100
containerLogMaxSize: 1Gi
evictionHard: {memory.available: 0%%}
kubeReserved: {memory: "%d"}
crashLoopBackOff: {maxContainerRestartPeriod: 300s}
`, 9*memory+memory/2)
	const after = `serializeImagePulls: false
imageMinimumGCAge: 1ms
imageGCHighThresholdPercent: 100
imageMaximumGCAge: 1s
containerLogMaxSize: 1Ki
evictionHard: {memory.available: 1%}
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
logging: {verbosity: 3}
systemReserved: {memory: 64Mi}
`
	r := newReloads(t, before)
	for _, ref := range []string{"example.com/slow:1", "example.com/slow:2"} {
		r.Images.Script(ref, node.PullBehaviour{Takes: time.Hour})
	}
	r.Images.Add("example.com/unused:1", false)
	grows := func(cpu string, memory int64) string {
		return fmt.Sprintf("  terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: \"IMAGE\", resources: {requests: {cpu: %s, memory: %d}}}]\n", cpu, memory)
	}
	r.up()
	r.want("grows", grows("10m", 1<<20))
	r.want("talks", "  terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: \"IMAGE\"}]\n")
	r.want("crashes", "  terminationGracePeriodSeconds: 1\n  containers: [{name: main, image: \"IMAGE\", command: [exit, \"1\"]}]\n")
	r.await("up", r.running("grows/main", "talks/main"))
	talker := r.newest("talks/main")
	if err := r.WriteLog(talker.Id, "stdout", strings.Repeat("x", 4096)); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		r.want(fmt.Sprint("slow", i+1), fmt.Sprintf("  containers: [{name: main, image: \"example.com/slow:%d\"}]\n", i+1))
	}
	r.want("grows", grows("20m", memory))
	r.await("the pod is too large", func() string { return r.condition("grows", v1.PodReasonInfeasible) })
	r.await("one image is pulled", func() string { return atLeast(r.Calls("PullImage"), 1) })

	r.reload(after, v1.EventTypeNormal, "ConfigurationReloaded", "evictionHard[memory.available], imageMaximumGCAge, kubeReserved[memory], logging.verbosity, serializeImagePulls, systemReserved[memory]")
	r.await("all pods may use less", func() string { return r.kubepodsMemory(capacityOf(t) - 64<<20) })
	if r.verbosity.Load() != 3 {
		t.Errorf("it logs with %d", r.verbosity.Load())
	}
	r.await("the other image is pulled", func() string { return atLeast(r.Calls("PullImage"), 2) })
	r.await("the pod is resized", func() string { return r.condition("grows", "") })
	r.await("the container resized", func() string { return atLeast(r.Calls("UpdateContainerResources"), 1) })
	r.await("the log is rotated", func() string {
		found, err := filepath.Glob(talker.LogPath + ".*")
		if err != nil || len(found) == 0 {
			return fmt.Sprint(found, err)
		}
		return ""
	})
	r.await("restarts come faster", func() string { return atLeast(int(r.newest("crashes/main").Metadata.Attempt), 3) })
	r.await("the image is removed", func() string {
		if _, there := r.Images.Resolve("example.com/unused:1"); there {
			return "it is there"
		}
		return ""
	})
}

// What can't be taken in changes nothing, not even in part.
func TestReloadIsRefusedAsAWhole(t *testing.T) {
	t.Parallel()
	r := newReloads(t, "")
	r.up()
	r.await("up", func() string {
		if _, err := r.client.Snapshot(t.Context()); err != nil {
			return err.Error()
		}
		return ""
	})
	for says, settings := range map[string]string{
		"podPidsLimit can't change while the agent runs": "logging: {verbosity: 3}\npodPidsLimit: 100",
		"more than this node's":                          "logging: {verbosity: 3}\nevictionHard: {memory.available: 1Ei}",
		"filePattern":                                    "logging: {verbosity: 3, vmodule: [{filePattern: \"[\", verbosity: 2}]}",
		"no-such-field":                                  "logging: {verbosity: 3}\nno-such-field: 1",
	} {
		r.reload("maxPods: 5\n"+settings, v1.EventTypeWarning, "ConfigurationNotReloaded", says)
		if s, err := r.client.Snapshot(t.Context()); err != nil || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Message, says) {
			t.Errorf("it isn't a problem that %s: %v, %v", says, s.Problems, err)
		}
	}
	now, err := r.client.Configuration(t.Context())
	if err != nil || now.Kubelet.MaxPods != 110 || r.verbosity.Load() != 0 {
		t.Errorf("maxPods is %d, the verbosity %d: %v", now.Kubelet.MaxPods, r.verbosity.Load(), err)
	}
	r.reload("logging: {verbosity: 3}", v1.EventTypeNormal, "ConfigurationReloaded", "")
	if s, err := r.client.Snapshot(t.Context()); err != nil || len(s.Problems) > 0 {
		t.Errorf("a good configuration is in force, and yet: %v, %v", s.Problems, err)
	}
}

// condition says what keeps a pod's pending resize from having this reason; none if it is "".
func (r *reloads) condition(pod, reason string) string {
	s, err := r.client.Snapshot(r.t.Context())
	if err != nil {
		return err.Error()
	}
	for _, v := range s.Pods {
		if v.Pod.Name != pod+"-n" {
			continue
		}
		for _, c := range v.Pod.Status.Conditions {
			if c.Type == v1.PodResizePending && c.Reason != reason {
				return fmt.Sprintf("its resize is %s: %s", c.Reason, c.Message)
			} else if c.Type == v1.PodResizePending {
				return ""
			}
		}
	}
	if reason == "" {
		return ""
	}
	return "no resize is pending"
}

// kubepodsMemory says how much memory all pods may use, if it isn't this, in whole pages.
func (r *reloads) kubepodsMemory(want int64) string {
	want &^= int64(os.Getpagesize()) - 1
	for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
		for _, hierarchy := range []string{"", "memory"} {
			text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", hierarchy, filepath.Base(r.dir), "kubepods", file))
			if err == nil && strings.TrimSpace(string(text)) == fmt.Sprint(want) {
				return ""
			}
			if err == nil {
				return fmt.Sprintf("%s is %s, want %d", file, text, want)
			}
		}
	}
	return "there is no group of all pods"
}

func atLeast(n, want int) string {
	if n < want {
		return fmt.Sprintf("%d, want %d", n, want)
	}
	return ""
}

// capacityOf is the host's memory in bytes.
func capacityOf(t *testing.T) int64 {
	t.Helper()
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		t.Fatal(err)
	}
	return int64(info.Totalram) * int64(info.Unit)
}
