package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// hasImage reports whether `deckhand images` lists an image.
func hasImage(n *node.Node, name string) (bool, error) {
	out, code := n.Deckhand("images")
	if code != 0 {
		return false, fmt.Errorf("deckhand images ended with %d and said %s", code, out)
	}
	return strings.Contains(out, name+" "), nil
}

// imagesAre looks whether these images are on the node, and those aren't.
func imagesAre(n *node.Node, here, gone []string) func() error {
	return func() error {
		for i, name := range append(here[:len(here):len(here)], gone...) {
			got, err := hasImage(n, name)
			if err != nil {
				return err
			}
			if want := i < len(here); got != want {
				return fmt.Errorf("image %s: on the node: %v, want %v", name, got, want)
			}
		}
		return nil
	}
}

// tellsLike looks whether what a command says, or a page, matches an expression.
func tellsLike(expression string, text func() string) func() error {
	return func() error {
		got := text()
		if !regexp.MustCompile(expression).MatchString(got) {
			return fmt.Errorf("nothing like %q is reported, but\n%s", expression, got)
		}
		return nil
	}
}

// mustPull pulls an image by hand.
func mustPull(t *testing.T, n *node.Node, ref string) {
	t.Helper()
	if out, code := n.Deckhand("images", "pull", ref); code != 0 {
		t.Fatalf("deckhand images pull %s ended with %d and said %s", ref, code, out)
	}
}

// When the disk is too full, or images are too old, those go that nobody needs.
func TestImageCollection(t *testing.T) {
	t.Parallel()
	// No disk is as empty as this asks for.
	n := node.New(t, binary, node.Options{Config: "imageGCHighThresholdPercent: 1\nimageGCLowThresholdPercent: 0\nimageMinimumGCAge: 1s"})
	n.Start()
	r := registry.New(t)
	for i := range 4 {
		r.Push(t, fmt.Sprintf("app%d:1", i), runnable(t, n, 1000))
	}
	events := func() string { out, _ := n.Deckhand("events", "-o", "wide"); return out }
	metrics := func() string {
		body, _, err := get(n.ReadOnlyURL("metrics"))
		return body + fmt.Sprint(err)
	}
	n.Write("web.yaml", pod("web"))
	n.Write("stays.yaml", podFrom("stays", r.Ref("app0:1")))
	n.Write("goes.yaml", podFrom("goes", r.Ref("app1:1")))
	n.Await("the pods run", node.Ready("web", "stays", "goes"))
	n.Remove("goes.yaml")
	n.Await("a pod is gone", gone("goes"), node.Ready("web", "stays"))
	mustPull(t, n, r.Ref("app2:1"))
	kept := []string{node.Image, "deckhand.local/pause:1", r.Ref("app0:1")}
	n.Eventually("what nobody needs has gone", imagesAre(n, kept, []string{r.Ref("app1:1")}))
	n.Eventually("it is reported", tellsLike(`Warning +FreeDiskSpaceFailed.*imageGCLowThresholdPercent \(0\).*removed `, events))
	n.Eventually("it is counted", tellsLike(`(?m)^kubelet_image_garbage_collected_total\{reason="space"\} [1-9]`, metrics))

	mustPull(t, n, r.Ref("app3:1"))
	n.Stop()
	n.Configure("imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 1s\nimageMaximumGCAge: 3s")
	n.Start()
	n.Await("the next agent is ready", agentIs(n), node.Ready("web", "stays"))
	n.Eventually("what is too old has gone", imagesAre(n, kept, []string{r.Ref("app1:1"), r.Ref("app2:1"), r.Ref("app3:1")}))
	n.Eventually("it is reported", tellsLike(`Normal +ImagesCollected.*imageMaximumGCAge is 3s`, events))
	n.Eventually("it is counted", tellsLike(`(?m)^kubelet_image_garbage_collected_total\{reason="age"\} [1-9]`, metrics))
	if strings.Contains(metrics(), `garbage_collected_total{reason="space"}`) {
		t.Error("images went for space though that is turned off")
	}
	for _, name := range []string{"web", "stays"} {
		if c := status(t, n.Await("it runs", node.Ready(name)), name, "web"); c.RestartCount != 0 {
			t.Errorf("pod %s has restarted %d times", name, c.RestartCount)
		}
	}
}
