package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// survey is what a container finds in its volumes: see images/tools/survey.go.
type survey struct {
	// Tried is what became of its attempts to change something, in the words of its flags.
	Tried map[string]string
	Files map[string]found
}

// found is what is at a path.
type found struct{ Mode, Owner, FSType, Text, Link string }

// tmpfsMagic is what statfs says of a tmpfs, in hexadecimal.
const tmpfsMagic = "1021994"

// surveys waits until a container has printed what it finds, and returns that.
func surveys(t *testing.T, n *node.Node, pod, container string) survey {
	t.Helper()
	var s survey
	n.Eventually("what "+container+" of "+pod+" finds in its volumes", func() error {
		out, code := n.Deckhand("logs", pod, container)
		s = survey{}
		if err := json.Unmarshal([]byte(out), &s); err != nil || code != 0 {
			return fmt.Errorf("its log ended with %d and is %q: %w", code, out, err)
		}
		return nil
	})
	return s
}

// text is what a container reads in a file.
func (s survey) text(path string) string { return s.Files[path].Text }

// mounting is a tool with further mounts, such as "{name: conf, mountPath: /conf}".
func mounting(tool string, mounts ...string) string {
	return strings.Replace(tool, "volumeMounts: [", "volumeMounts: ["+strings.Join(mounts, ", ")+", ", 1)
}

// withVolumes is a toolPod with further volumes.
func withVolumes(pod string, volumes ...string) string {
	return strings.Replace(pod, "volumes: [", "volumes: ["+strings.Join(volumes, ", ")+", ", 1)
}

// onDisk is a volume's directory on the host.
func onDisk(n *node.Node, v local.PodView, plugin, name string) string {
	return filepath.Join(n.RootDir, "pods", string(v.Pod.UID), "volumes", "kubernetes.io~"+plugin, name)
}

// holds looks whether a file of the host has this text, and no other.
func holds(path, text string) func() error {
	return func() error {
		got, err := os.ReadFile(path)
		if err == nil && string(got) != text {
			err = fmt.Errorf("it is %q, want %q", got, text)
		}
		return err
	}
}

// putFile makes a file on the host, and the directories above it.
func putFile(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// isGone looks whether nothing is left at a path of the host.
func isGone(path string) func() error {
	return func() error {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there (%v)", path, err)
		}
		return nil
	}
}

// mountIDs are the mounts on the host below a directory, by what they are mounted at.
func mountIDs(t *testing.T, dir string) map[string]int {
	t.Helper()
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, info := range infos {
		out[info.Mountpoint] = info.ID
	}
	return out
}

// held is the condition that a pod waits, none of its containers made, for a reason with all these words.
func held(pod string, words ...string) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		for _, c := range v.Pod.Status.ContainerStatuses {
			if c.ContainerID != "" {
				return fmt.Errorf("container %s was made", c.Name)
			}
		}
		text := v.Waiting()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("it waits for %q, want %q in that", text, w)
			}
		}
		if v.Pod.Status.Phase != v1.PodPending {
			return fmt.Errorf("it is %s", v.Pod.Status.Phase)
		}
		return nil
	})
}

// parts runs tests side by side on one node, which is empty afterwards.
func parts(t *testing.T, n *node.Node, tests map[string]func(*testing.T, *node.Node)) {
	t.Helper()
	ok := t.Run("parts", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, n.For(t))
			})
		}
	})
	if ok {
		n.Eventually("the pods leave nothing", n.PodLeftovers)
	}
}
