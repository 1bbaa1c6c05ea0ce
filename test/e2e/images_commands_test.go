package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// archive writes an archive of some image as `docker save` does, and returns its path.
func archive(t *testing.T, n *node.Node, ref string) string {
	t.Helper()
	return archiveOf(t, ref, runnable(t, n, 1000))
}

func archiveOf(t *testing.T, ref string, image ggcr.Image) string {
	t.Helper()
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		t.Fatal(err)
	}
	return path
}

// What a person does with images by hand.
func TestImagesCommands(t *testing.T) {
	t.Parallel()
	n := start(t)
	r := registry.New(t)
	app := runnable(t, n, 3_000_000)
	r.Push(t, "app:1", app)
	used := runnable(t, n, 1000)
	r.Push(t, "used:1", used)
	r.Push(t, "used:2", runnable(t, n, 1000))
	twice := runnable(t, n, 1000)
	r.Push(t, "twice:1", twice)
	r.Push(t, "twice:2", twice)
	n.Write("a.yaml", podFrom("a", r.Ref("used:1")))
	n.Write("b.yaml", podFrom("b", r.Ref("used:2")))
	n.Await("pods use images", node.Ready("a", "b"))
	n.Remove("b.yaml")
	n.Await("one is gone", gone("b"), node.Ready("a"))
	says := func(code int, want string, args ...string) {
		t.Helper()
		out, got := n.Deckhand(append([]string{"images"}, args...)...)
		if got != code || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("deckhand images %s ended with %d and said\n%s\nwant %d and %s", strings.Join(args, " "), got, out, code, want)
		}
	}
	host := regexp.QuoteMeta(r.Host())

	pullsWithProgress(t, n, r, app)
	says(0, "pulled "+host+`/twice:1 \(\d\.\dMB, \S+s\)`, "pull", r.Ref("twice:1"))
	says(0, "pulled "+host+"/twice:2 ", "pull", r.Ref("twice:2"))
	says(1, "nothing:1.*not found", "pull", r.Ref("nothing:1"))

	file, stream := "deckhand.local/file:1", "deckhand.local/stream:1"
	says(0, "^"+regexp.QuoteMeta(file)+"\n$", "import", archive(t, n, file))
	text, err := os.ReadFile(archive(t, n, stream))
	if err != nil {
		t.Fatal(err)
	}
	if out, code := n.Fed(bytes.NewReader(text), "images", "import", "-"); code != 0 || out != stream+"\n" {
		t.Errorf("deckhand images import - ended with %d and said %q", code, out)
	}
	if out, code := n.Fed(strings.NewReader("no archive"), "images", "import", "-"); code != 1 || !strings.Contains(out, "import -: ") {
		t.Errorf("deckhand images import of garbage ended with %d and said %q", code, out)
	}

	says(0, `(?s)IMAGE +ID +SIZE +USED BY +LAST USED\n.*`+host+`/app:1 +[0-9a-f]{12} +\d\.\dMB +\d+s ago`)
	says(0, regexp.QuoteMeta(file)+` +[0-9a-f]{12} +\d\.\dMB +never \(here for \d+s\)`)
	says(0, host+`/used:1 +[0-9a-f]{12} +\d\.\dMB +default/a-node1 +now`)
	says(0, host+`/used:2 +[0-9a-f]{12} +\d\.\dMB +\d+s ago`)

	says(1, "in use by container web of pod default/a-node1", "rm", r.Ref("used:1"))
	says(1, `"deckhand.local/nobody:1" isn't on this node`, "rm", "deckhand.local/nobody:1")
	says(0, "untagged "+host+"/twice:1; the image is still here as "+host+"/twice:2\n", "rm", r.Ref("twice:1"))
	says(1, `twice:1" isn't on this node`, "rm", r.Ref("twice:1"))
	says(0, "pulled "+host+"/twice:1 ", "pull", r.Ref("twice:1"))
	const other = "deckhand.local/other:1" // of an image that a pod uses by another name
	says(0, "^"+regexp.QuoteMeta(other)+"\n$", "import", archiveOf(t, other, used))
	says(1, "in use by container web of pod default/a-node1", "rm", r.Ref("used:1"))
	says(0, "untagged "+regexp.QuoteMeta(other)+"; the image is still here as "+host+"/used:1\n", "rm", other)
	says(1, "the image of the pods' sandboxes|pinned", "rm", "deckhand.local/pause:1")
	says(0, "removed "+host+`/app:1 \(\d\.\dMB\)`, "rm", r.Ref("app:1"))
	if here, err := hasImage(n, r.Ref("app:1")); here || err != nil {
		t.Errorf("the image that was removed is listed: %v, %v", here, err)
	}

	const unused = `(?s)deckhand\.local/file:1 .* would be removed +unused, and asked for\n.*would remove 4 images, `
	says(0, unused, "prune", "--dry-run")
	says(0, unused, "prune", "--dry-run") // nothing has changed
	says(0, host+`/used:1 .* kept +in use by container web of pod default/a-node1`, "prune", "--dry-run")
	says(0, `(?s)deckhand\.local/file:1 .* removed +unused.*removed 4 images, `, "prune", "--yes")
	n.Eventually("what is used is left", imagesAre(n, []string{r.Ref("used:1"), "deckhand.local/pause:1", node.Image},
		[]string{r.Ref("used:2"), r.Ref("twice:1"), r.Ref("twice:2"), file, stream}))
	// Where would it come from again, but from there?
	says(1, "its archive is in the images directory", "rm", node.Image)
	if err := os.Remove(filepath.Join(n.RootDir, "images", "web.tar")); err != nil {
		t.Fatal(err)
	}
	says(0, "removed 1 image, \\d\\.\\dMB", "prune", "--yes")
	says(0, "removed 0 images, 0B", "prune", "--yes")
	n.Await("the pod runs on", node.Ready("a"))
}

// An image is saved, removed, imported again, and run; and it is run by a further name.
func TestImagesSaveAndTag(t *testing.T) {
	t.Parallel()
	n := start(t)
	r := registry.New(t)
	r.Push(t, "app:1", runnable(t, n, 3_000_000))
	r.Push(t, "other:1", runnable(t, n, 1000))
	images := func(code int, want string, args ...string) {
		t.Helper()
		out, got := n.Deckhand(append([]string{"images"}, args...)...)
		if got != code || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("deckhand images %q ended with %d and said\n%s\nwant %d and %s", args, got, out, code, want)
		}
	}
	app, other := r.Ref("app:1"), r.Ref("other:1")
	n.Await("the agent answers")
	images(0, "pulled", "pull", app)
	images(0, "pulled", "pull", other)

	file := filepath.Join(t.TempDir(), "app.tar")
	images(0, `^saved \S+/app:1 to \S+/app\.tar \(\d\.\dMB\)\n$`, "save", app, "-o", file)
	images(1, `none:1" isn't on this node`, "save", app, r.Ref("none:1"), "-o", file+".none")
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); err != nil || len(left) != 1 {
		t.Errorf("there are %q, %v", left, err)
	}
	tag, err := name.NewTag(app)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tarball.ImageFromPath(file, &tag); err != nil {
		t.Errorf("docker's tools can't read it: %v", err)
	}
	images(0, "removed", "rm", app)
	images(0, "^"+regexp.QuoteMeta(app)+"\n$", "import", file)

	// A further name, which moves from another image.
	images(0, "^tagged "+regexp.QuoteMeta(app)+" as docker.io/library/shop:latest\n$", "tag", app, "shop")
	images(0, "^tagged ", "tag", other, "deckhand.local/moves:1")
	images(0, "(?s)tagged .* as deckhand.local/moves:1\n.*had that name before", "tag", "shop", "deckhand.local/moves:1")
	images(1, "the image of the pods' sandboxes|its archive is", "tag", app, "deckhand.local/pause:1")
	images(1, "that can't be the name of an image", "tag", app, "Shop:1")
	n.Write("saved.yaml", podFrom("saved", app, never))
	n.Write("tagged.yaml", podFrom("tagged", "shop", never))
	n.Write("moved.yaml", podFrom("moved", "deckhand.local/moves:1", never))
	n.Await("pods run by all names", node.Ready("saved", "tagged", "moved"), noRestarts)
	images(0, `(?s)deckhand\.local/moves:1.*default/moved-node1`, "inspect", app)

	// The other image has kept its own name, and it goes with that.
	images(0, "removed "+regexp.QuoteMeta(other), "rm", other)
	n.Await("the pods run on", node.Ready("saved", "tagged", "moved"), noRestarts)
}

// pullsWithProgress pulls an image for somebody who is reported how far that is.
func pullsWithProgress(t *testing.T, n *node.Node, r *registry.Registry, app ggcr.Image) {
	t.Helper()
	stop := r.StopBlob(ownLayer(t, app), 2_500_000)
	seen := false
	for u, err := range local.NewClient(local.SocketPath(n.RootDir)).PullImage(t.Context(), r.Ref("app:1")) {
		if err != nil {
			t.Fatal(err)
		}
		if p := u.Progress; p != nil && p.Layers == 2 && p.LayersDone == 1 && p.Done > 1_000_000 && p.Total > p.Done {
			seen = true
			stop.Release()
		}
		if u.Image != nil && (!seen || !strings.Contains(strings.Join(u.Image.Refs, " "), r.Ref("app:1"))) {
			t.Errorf("progress was reported: %v; the image is %+v", seen, u.Image)
		}
	}
}
