// Package e2e tests deckhand from outside: the real program, a real containerd and
// real containers, watched by way of what a person or another program can see.
package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// binary is the program under test, tools the archive of test images; TestMain
// builds them before any test runs.
var binary, tools string

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return run(m) }))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "deckhand-e2e-")
	if err == nil {
		defer os.RemoveAll(dir)
		binary, err = node.Build(dir)
	}
	if err == nil {
		tools, err = node.ToolsArchive(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start starts a node with nothing on it.
func start(t *testing.T) *node.Node {
	t.Helper()
	n := node.New(t, binary, node.Options{})
	n.Start()
	return n
}

// pod is a manifest with one container "web". Further lines are fields of the
// container; those that begin with "spec." are fields of the pod.
func pod(name string, lines ...string) string {
	var container, spec strings.Builder
	for _, line := range lines {
		if field, ok := strings.CutPrefix(line, "spec."); ok {
			fmt.Fprintf(&spec, "  %s\n", field)
			continue
		}
		fmt.Fprintf(&container, "    %s\n", line)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
spec:
  terminationGracePeriodSeconds: 2
%s  containers:
  - name: web
    image: %s
%s`, name, &spec, node.Image, &container)
}

// greeting is a field of a container that tells versions of it apart.
func greeting(text string) string { return fmt.Sprintf("env: [{name: GREETING, value: %q}]", text) }

// view is the pod's part of a snapshot.
func view(t *testing.T, s local.Snapshot, name string) local.PodView {
	t.Helper()
	v := node.Find(s, name)
	if v == nil {
		t.Fatalf("pod %s isn't there", name)
	}
	return *v
}

// containerID is the runtime's ID of a container in a snapshot.
func containerID(t *testing.T, s local.Snapshot, pod, container string) string {
	t.Helper()
	_, id, ok := strings.Cut(status(t, s, pod, container).ContainerID, "://")
	if !ok {
		t.Fatalf("container %s of pod %s has no ID", container, pod)
	}
	return id
}

// get fetches a page.
func get(url string) (body string, status int, err error) {
	client := http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), response.StatusCode, err
}

// answers looks whether a page has the words.
func answers(url, words string) func() error {
	return func() error {
		body, status, err := get(url)
		if err != nil {
			return err
		}
		if status != http.StatusOK || !strings.Contains(body, words) {
			return fmt.Errorf("%s answered %d %q, want %q in it", url, status, body, words)
		}
		return nil
	}
}

// unchanged fails the test unless the same containers run as before.
func unchanged(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, id := range before {
		if after[name] != id {
			t.Errorf("container %s was %s and is %q", name, id, after[name])
		}
	}
	for name := range after {
		if before[name] == "" {
			t.Errorf("container %s is new", name)
		}
	}
}
