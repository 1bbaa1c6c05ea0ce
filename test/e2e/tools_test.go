package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// The images whose containers do as they are reported: see images/tools/main.go.
const tools1, tools2 = "deckhand.local/tools:1", "deckhand.local/tools:2"

// startTools starts a node that has the tools images. config is added to its configuration.
func startTools(t *testing.T, config ...string) *node.Node {
	t.Helper()
	n := node.New(t, binary, node.Options{Archives: []string{tools}, Config: strings.Join(config, "\n")})
	n.Start()
	return n
}

// tool is a container as flow-style YAML: what the program is reported, its arguments
// between blanks, and further fields. What it does is in the pod's diary.
func tool(name, command string, fields ...string) string {
	args := strings.Fields(command)
	if args[0] == "act" {
		args = append(args, "-name", name, "-diary", "/diary/log")
	}
	list, err := json.Marshal(args)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	all := append([]string{"name: " + name, "image: " + tools1, "args: " + string(list), "volumeMounts: [{name: diary, mountPath: /diary}]"}, fields...)
	return "{" + strings.Join(all, ", ") + "}"
}

// toolPod is a manifest. Each line is a field of the spec; grace is 2 s unless one says otherwise.
func toolPod(n *node.Node, name string, lines ...string) string {
	return labelledPod(n, name, "{}", lines...)
}

func labelledPod(n *node.Node, name, labels string, lines ...string) string {
	grace := "terminationGracePeriodSeconds: 2"
	for _, line := range lines {
		if strings.HasPrefix(line, "terminationGracePeriodSeconds:") {
			grace = line
		}
	}
	var spec strings.Builder
	for _, line := range append([]string{grace}, lines...) {
		if line != grace || spec.Len() == 0 {
			fmt.Fprintf(&spec, "  %s\n", line)
		}
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: %s}
spec:
  volumes: [{name: diary, hostPath: {path: %s, type: DirectoryOrCreate}}]
%s`, name, labels, diaryDir(n, name), &spec)
}

// containers and initContainers are lines of a toolPod.
func containers(list ...string) string { return "containers: [" + strings.Join(list, ", ") + "]" }

func initContainers(list ...string) string {
	return "initContainers: [" + strings.Join(list, ", ") + "]"
}

func diaryDir(n *node.Node, pod string) string { return filepath.Join(n.Base, "diary", pod) }

// touch makes files in a pod's diary directory, /diary to its containers.
func touch(t *testing.T, n *node.Node, pod string, files ...string) {
	t.Helper()
	if err := os.MkdirAll(diaryDir(n, pod), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(diaryDir(n, pod), f), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// untouch removes them.
func untouch(t *testing.T, n *node.Node, pod string, files ...string) {
	t.Helper()
	for _, f := range files {
		if err := os.Remove(filepath.Join(diaryDir(n, pod), f)); err != nil {
			t.Fatal(err)
		}
	}
}

// entry is a line of a diary.
type entry struct {
	at   time.Time
	text string
}

// diary is what a pod's containers wrote down, in the order in which they did.
func diary(t *testing.T, n *node.Node, pod string) []entry {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(diaryDir(n, pod), "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var out []entry
	for line := range strings.Lines(string(text)) {
		at, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		nanos, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			t.Fatalf("diary line %q: %v", line, err)
		}
		out = append(out, entry{time.Unix(0, nanos), text})
	}
	return out
}

// inOrder waits until the diary has these lines in this order, whatever is between
// them, and returns when they were written.
func inOrder(t *testing.T, n *node.Node, pod string, want ...string) []time.Time {
	t.Helper()
	var at []time.Time
	n.Eventually("the diary of "+pod, func() error {
		lines := diary(t, n, pod)
		at = at[:0]
		for _, e := range lines {
			if len(at) < len(want) && e.text == want[len(at)] {
				at = append(at, e.at)
			}
		}
		if len(at) < len(want) {
			return fmt.Errorf("it doesn't have %q in its place:\n%s", want[len(at)], reported(lines))
		}
		return nil
	})
	return at
}

// times is how often a line is in the diary.
func times(t *testing.T, n *node.Node, pod, want string) int {
	t.Helper()
	count := 0
	for _, e := range diary(t, n, pod) {
		if e.text == want {
			count++
		}
	}
	return count
}

func reported(lines []entry) string {
	var b strings.Builder
	for _, e := range lines {
		fmt.Fprintf(&b, "  %s %s\n", e.at.Format(time.StampMicro), e.text)
	}
	return b.String()
}

// statusOf is the status of a container of any kind.
func statusOf(v *local.PodView, name string) (v1.ContainerStatus, error) {
	st := &v.Pod.Status
	for _, list := range [][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == name {
				return c, nil
			}
		}
	}
	return v1.ContainerStatus{}, fmt.Errorf("container %s has no status", name)
}

// status is statusOf in a snapshot.
func status(t *testing.T, s local.Snapshot, pod, name string) v1.ContainerStatus {
	t.Helper()
	v := view(t, s, pod)
	c, err := statusOf(&v, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// container is a condition on a container's status.
func container(pod, name string, check func(c v1.ContainerStatus) error) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		c, err := statusOf(&v, name)
		if err == nil {
			err = check(c)
		}
		if err != nil {
			return fmt.Errorf("container %s: %w; its pod waits: %q", name, err, v.Waiting())
		}
		return nil
	})
}

// runs is the condition that a container runs and has restarted so often.
func runs(pod, name string, restarts int32) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if c.State.Running == nil || c.RestartCount != restarts {
			return fmt.Errorf("%d restarts, %+v; want it to run after %d", c.RestartCount, c.State, restarts)
		}
		return nil
	})
}

// starting is the condition that a container is being created, as one is whose postStart hook runs.
func starting(pod, name string) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if c.State.Waiting == nil || c.State.Waiting.Reason != "ContainerCreating" {
			return fmt.Errorf("is %+v, want it to be created", c.State)
		}
		return nil
	})
}

// ended is the condition that a container has ended for good.
func ended(pod, name string, code int32, reason string) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if e := c.State.Terminated; e == nil || e.ExitCode != code || e.Reason != reason {
			return fmt.Errorf("is %+v, want it ended with %d %s", c.State, code, reason)
		}
		return nil
	})
}

// lastEnded is the condition that a container's last instance ended so.
func lastEnded(pod, name string, code int32, reason string) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if e := c.LastTerminationState.Terminated; e == nil || e.ExitCode != code || e.Reason != reason {
			return fmt.Errorf("ended last as %+v, want %d %s", e, code, reason)
		}
		return nil
	})
}

// readyIs is the condition that a container is ready, or not.
func readyIs(pod, name string, want bool) node.Condition {
	return container(pod, name, func(c v1.ContainerStatus) error {
		if c.Ready != want {
			return fmt.Errorf("ready is %v", c.Ready)
		}
		return nil
	})
}

// hasCondition is the condition that the pod's condition is so; with an empty
// status, that there is none.
func hasCondition(pod string, typ v1.PodConditionType, status v1.ConditionStatus, reason string) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		for _, c := range v.Pod.Status.Conditions {
			if c.Type == typ {
				if c.Status != status || c.Reason != reason {
					return fmt.Errorf("condition %s is %s %q (%s), want %s %q", typ, c.Status, c.Reason, c.Message, status, reason)
				}
				return nil
			}
		}
		if status != "" {
			return fmt.Errorf("condition %s isn't there", typ)
		}
		return nil
	})
}

// gone is the condition that the pod isn't there any more.
func gone(pod string) node.Condition {
	return func(s local.Snapshot) error {
		if !s.Agent.Synced {
			return errors.New("the sources haven't reported")
		}
		if v := node.Find(s, pod); v != nil {
			return fmt.Errorf("pod %s is there: %q", pod, v.Waiting())
		}
		return nil
	}
}

// observes is the condition that the status is of this generation of the pod.
func observes(pod string, generation int64) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		if got := v.Pod.Status.ObservedGeneration; got != generation {
			return fmt.Errorf("observedGeneration %d, want %d", got, generation)
		}
		return nil
	})
}

// remove takes a pod away and waits until it is gone. What was decided about it has
// to be what is decided again.
func remove(t *testing.T, n *node.Node, pod string) {
	t.Helper()
	replays(t, n, pod)
	n.Remove(pod + ".yaml")
	n.Await("the pod "+pod+" is gone", gone(pod))
}
