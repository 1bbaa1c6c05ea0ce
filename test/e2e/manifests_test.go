package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// Manifests that can't be used are reported with everything that is wrong in them,
// and keep no neighbour from running.
func TestMalformedManifests(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("field.yaml", strings.Replace(pod("field"), "containers:", "containrs:", 1))
	n.Write("value.yaml", pod("value", "imagePullPolicy: Sometimes", "ports: [{containerPort: 99999}]"))
	n.Write("text.yaml", "}{ this is no manifest\n")
	n.Write("kind.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n")
	n.Write("empty.yaml", "")
	n.Write("big.yaml", pod("big")+strings.Repeat("# filler\n", 11<<20/9))
	n.Write(".hidden.yaml", pod("hidden"))
	n.Write("backup.yaml~", pod("backup"))
	if err := os.Mkdir(n.Path("directory.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", n.Path("link.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(n.Path("fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.Write("good.yaml", pod("good"))
	n.Await("the good pod runs and the rest is reported",
		node.Ready("good"), node.Only("good"),
		node.Problem(n.Path("field.yaml"), "containrs", "line 7"),
		node.Problem(n.Path("value.yaml"), "spec.containers[0].imagePullPolicy", "Sometimes", "spec.containers[0].ports[0].containerPort"),
		node.Problem(n.Path("text.yaml")),
		node.Problem(n.Path("kind.yaml"), "Deployment"),
		node.Problem(n.Path("empty.yaml")),
		node.Problem(n.Path("big.yaml"), "10 MiB"),
		node.Problem(n.Path("directory.yaml"), "directory"),
		node.Problem(n.Path("link.yaml"), "link"),
		node.Problem(n.Path("fifo.yaml"), "FIFO"))

	for _, file := range []string{"field", "value", "text", "kind", "empty", "big", "directory", "link", "fifo"} {
		n.Remove(file + ".yaml")
	}
	n.Await("removed manifests are no problem", node.NoProblems, node.Ready("good"), node.Only("good"))
}

// A manifest that turns bad keeps its last good version running, also when the
// agent starts anew; only its removal ends the pod.
func TestLastGoodVersionStays(t *testing.T) {
	t.Parallel()
	n := start(t)
	good := map[string]string{"a": pod("a"), "b": pod("b"), "c": pod("c")}
	for name, text := range good {
		n.Write(name+".yaml", text)
	}
	n.Await("three pods run", node.Ready("a", "b", "c"))
	before := n.RunningIDs()

	spoil := func() {
		n.WriteInPlace("a.yaml", good["a"][:len(good["a"])-30])
		n.WriteInPlace("b.yaml", strings.Replace(good["b"], "image:", "imgae:", 1))
		n.WriteInPlace("c.yaml", "")
	}
	kept := []node.Condition{node.Ready("a", "b", "c"), node.Only("a", "b", "c"), noRestarts,
		node.Stale("a", " "), node.Stale("b", "imgae"), node.Stale("c", "it is empty"), node.Problem(n.Path("b.yaml"), "imgae")}
	spoil()
	n.Await("the bad versions are reported", kept...)
	unchanged(t, before, n.RunningIDs())

	n.Kill()
	n.Start()
	n.Await("the good versions are known after kill -9", append(kept, agentIs(n))...)
	unchanged(t, before, n.RunningIDs())

	n.Write("a.yaml", good["a"])
	n.Remove("b.yaml")
	n.Write("c.yaml", pod("c", greeting("good again")))
	n.Await("good versions count again, a removed one is removed", node.NoProblems,
		node.Ready("a", "c"), node.Only("a", "c"), node.Stale("a", ""), node.Stale("c", ""))
	now := n.RunningIDs()
	if now["a-node1/web"] != before["a-node1/web"] {
		t.Error("a's manifest is as it was, but its container was replaced")
	}
	if now["c-node1/web"] == before["c-node1/web"] {
		t.Error("c's manifest has changed, but its old container runs")
	}
}

// A writer that takes its time is given it: half a manifest is no manifest.
func TestWrittenInPieces(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("a.yaml", pod("a"))
	s := n.Await("the pod runs", node.Ready("a"))
	f, err := os.OpenFile(n.Path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := pod("a", greeting("in pieces"))
	for _, part := range []string{text[:40], text[40 : len(text)-20], text[len(text)-20:]} {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n.Await("the new version runs", node.Changed("a", s), node.Only("a"), node.NoProblems)
}

func TestSeveralPodsInOneFile(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("docs.yaml", pod("a")+"---\n"+pod("b")+"---\n")
	n.Write("list.json", `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "c"}, "spec": {"containers": [{"name": "web", "image": "`+node.Image+`"}]}},
		{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d"}, "spec": {"containers": [{"name": "web", "image": "`+node.Image+`"}]}}]}`)
	n.Await("the pods of both files run", node.Ready("a", "b", "c", "d"), node.NoProblems)
	before := n.RunningIDs()
	n.Write("docs.yaml", pod("b")+"---\n"+pod("e"))
	n.Await("one document is removed, one moved and one added", node.Ready("b", "c", "d", "e"), node.Only("b", "c", "d", "e"))
	if now := n.RunningIDs(); now["b-node1/web"] != before["b-node1/web"] {
		t.Error("b's document has only moved, but its container was replaced")
	}
}

// Of two files that claim one name the first to do so has it.
func TestTwoFilesClaimOneName(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Write("z.yaml", pod("a", greeting("the first")))
	s := n.Await("the first one runs", node.Ready("a"))
	before := n.RunningIDs()
	n.Write("b.yaml", pod("a", greeting("the second")))
	n.Await("the second is reported", node.Problem(n.Path("b.yaml"), n.Path("z.yaml")), node.Ready("a"), node.Only("a"))
	n.Kill()
	n.Start()
	n.Await("the first stays the first", agentIs(n), node.Problem(n.Path("b.yaml"), n.Path("z.yaml")), node.Ready("a"), node.Only("a"), noRestarts)
	unchanged(t, before, n.RunningIDs())
	n.Remove("z.yaml")
	n.Await("now the second one runs", node.Changed("a", s), node.Only("a"), node.NoProblems)
}
