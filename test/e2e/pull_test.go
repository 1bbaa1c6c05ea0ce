package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// runnable makes an image that runs as node.Image does and has a layer of so many bytes of
// its own to pull.
func runnable(t *testing.T, n *node.Node, size int64) ggcr.Image {
	t.Helper()
	return registry.WithLayer(t, registry.FromArchive(t, filepath.Join(n.RootDir, "images", "web.tar"), node.Image), size)
}

// ownLayer is the digest of the layer that a runnable image has for itself.
func ownLayer(t *testing.T, image ggcr.Image) string {
	t.Helper()
	layers := registry.Layers(t, image)
	return layers[len(layers)-1]
}

// podFrom is the manifest of a pod with this image. The lines are those of pod.
func podFrom(name, image string, lines ...string) string {
	return strings.Replace(pod(name, lines...), node.Image, image, 1)
}

const (
	always       = "imagePullPolicy: Always"
	never        = "imagePullPolicy: Never"
	ifNotPresent = "imagePullPolicy: IfNotPresent"
)

// pullSecrets is a field of a pod, for podFrom.
func pullSecrets(names ...string) string {
	return "spec.imagePullSecrets: [{name: " + strings.Join(names, "}, {name: ") + "}]"
}

// reasonHas is the condition that the pod waits for something that has these words.
func reasonHas(name string, words ...string) node.Condition {
	return node.Each([]string{name}, func(v local.PodView) error {
		text := v.Waiting()
		for _, w := range words {
			if !strings.Contains(text, w) {
				return fmt.Errorf("it waits for %q, want %q in that", text, words)
			}
		}
		return nil
	})
}

// wait is what a pod waits for.
type wait struct {
	Text        string
	Since, Next time.Time
}

// explained is what `deckhand why` has to say for programs about the first wait of a pod.
func explained(t *testing.T, n *node.Node, name string) wait {
	t.Helper()
	w, err := firstWait(n, name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// firstWait is explained for a pod that may not wait for anything.
func firstWait(n *node.Node, name string) (wait, error) {
	out, _ := n.Deckhand("why", name, "-o", "json")
	var e struct{ Waits []wait }
	if err := json.Unmarshal([]byte(out), &e); err != nil || len(e.Waits) == 0 {
		return wait{}, fmt.Errorf("deckhand why %s -o json: %v\n%s", name, err, out)
	}
	return e.Waits[0], nil
}

// counts fails the test unless an image was pulled so often.
func counts(t *testing.T, r *registry.Registry, name string, want int) {
	t.Helper()
	if got := r.PullCount(name); got != want {
		t.Errorf("%s was pulled %d times, want %d", name, got, want)
	}
}

// reached waits until an answer has stopped.
func reached(t *testing.T, s *registry.Stop) {
	t.Helper()
	select {
	case <-s.Reached():
	case <-time.After(node.Deadline):
		t.Fatal("the registry wasn't asked for the layer")
	}
}

// Images come by tag and by digest, with and without TLS, when their policy says so.
func TestPull(t *testing.T) {
	t.Parallel()
	n := start(t)
	plain, secure, unknown := registry.New(t), registry.New(t, registry.WithTLS()), registry.New(t, registry.WithTLS())
	secure.WriteHosts(t, filepath.Join(n.RootDir, "containerd", "certs.d"))
	app := runnable(t, n, 100_000)
	byDigest := plain.Push(t, "app:1", app)
	plain.Push(t, "app:2", app)
	secure.Push(t, "app", runnable(t, n, 1000))
	unknown.Push(t, "app", runnable(t, n, 1000))
	both := runnable(t, n, 2000)
	plain.Push(t, "both", both)
	n.Write("here.yaml", pod("here", never))
	n.Await("the agent answers", node.Ready("here"))
	if out, code := n.Deckhand("images", "import", archiveOf(t, "deckhand.local/both:1", both)); code != 0 {
		t.Fatal(out)
	}
	missing := fmt.Sprintf("spec.volumes: [{name: missing, image: {reference: %q, pullPolicy: Never}}]", plain.Ref("app:3"))

	for name, manifest := range map[string]string{
		"first": podFrom("first", plain.Ref("app:1"), ifNotPresent), "tag": podFrom("tag", plain.Ref("app:2")),
		"digest": podFrom("digest", byDigest), "tls": podFrom("tls", secure.Ref("app")),
		"never": podFrom("never", plain.Ref("app:3"), never), "invalid": podFrom("invalid", plain.Ref("APP:1")),
		"untrusted": podFrom("untrusted", unknown.Ref("app")), "both": podFrom("both", plain.Ref("both")),
		"volume": pod("volume", "volumeMounts: [{name: missing, mountPath: /missing}]", missing), "unmounted": pod("unmounted", missing),
	} {
		n.Write(name+".yaml", manifest)
	}
	s := n.Await("what can be had is had", node.Ready("first", "tag", "digest", "tls", "here", "both", "unmounted"),
		waiting("never", "ErrImageNeverPull", "is not present with pull policy of Never"), waiting("invalid", "InvalidImageName", "must be lowercase"),
		waiting("untrusted", "ImagePullBackOff", "certificate signed by unknown authority"), waiting("volume", "ErrImageNeverPull", "is not present with pull policy of Never"))
	id := status(t, s, "first", "web").ImageID
	for _, name := range []string{"tag", "digest"} {
		if got := status(t, s, name, "web").ImageID; got != id {
			t.Errorf("the image of %s is %s, want that of the same digest, %s", name, got, id)
		}
	}
	n.AwaitEvent("first", "Pulling", "{web}", fmt.Sprintf("Pulling image %q", plain.Ref("app:1")))
	reported := n.AwaitEvent("first", "Pulled", "Successfully pulled image").Message
	if !regexp.MustCompile(`^Successfully pulled image "` + regexp.QuoteMeta(plain.Ref("app:1")) + `" in \S+s \(\S+s including waiting\)\. Image size: [1-9]\d{5,} bytes\.$`).MatchString(reported) {
		t.Errorf("the event is %q", reported)
	}
	n.AwaitEvent("never", "Failed", "ErrImageNeverPull")
	n.AwaitEvent("invalid", "Failed", "InvalidImageName")

	n.Write("again.yaml", podFrom("again", plain.Ref("app:1"), ifNotPresent))
	n.Write("always.yaml", podFrom("always", plain.Ref("app:1"), always))
	n.Write("imported.yaml", podFrom("imported", "deckhand.local/both:1", never)) // whatever was pulled of it meanwhile
	n.Await("two more have it", node.Ready("again", "always", "imported"))
	n.AwaitEvent("again", "Pulled", "already present on machine")
	if n.HasEvent("again", "Pulling") {
		t.Error("an image that is here was pulled for a pod with policy IfNotPresent")
	}
	n.AwaitEvent("always", "Pulling")
	n.AwaitEvent("always", "Pulled", "Successfully pulled image")
	counts(t, plain, "app:1", 2) // for first and always
	counts(t, plain, "app:2", 1)
	counts(t, plain, "app@"+registry.Digest(t, app), 1)
	counts(t, secure, "app", 1)
	counts(t, plain, "app:3", 0)
	replays(t, n, "always")
}

// A pull that fails is reported, and tried again after a while; an edit of the manifest is tried at once.
func TestPullsThatFail(t *testing.T) {
	t.Parallel()
	n := start(t)
	r := registry.New(t)
	cut := runnable(t, n, 100_000)
	r.Push(t, "limited:1", runnable(t, n, 1000))
	r.Push(t, "cut:1", cut)
	r.Push(t, "typo:1", runnable(t, n, 1000))
	r.Fail(registry.Failure{Kind: registry.Manifests, Repository: "limited", Status: http.StatusTooManyRequests, Times: 1000})
	r.CutBlob(ownLayer(t, cut), 0, 1000)
	course := n.Follow("cut", func(v local.PodView) string {
		c, err := statusOf(&v, "web")
		if err != nil || c.State.Waiting == nil {
			return ""
		}
		return c.State.Waiting.Reason
	})
	n.Write("limited.yaml", podFrom("limited", r.Ref("limited:1")))
	n.Write("cut.yaml", podFrom("cut", r.Ref("cut:1")))
	n.Write("typo.yaml", podFrom("typo", r.Ref("typo:one")))
	n.Await("the pulls fail", waiting("limited", "ImagePullBackOff", "429 Too Many Requests"), waiting("cut", "ImagePullBackOff", "EOF"),
		waiting("typo", "ImagePullBackOff", "not found"))
	next := map[string]time.Time{}
	for _, name := range []string{"limited", "cut", "typo"} {
		e := explained(t, n, name)
		if wait := e.Next.Sub(e.Since); wait < 9*time.Second || wait > 10500*time.Millisecond || !strings.HasPrefix(e.Text, "ErrImagePull: failed to pull image") {
			t.Errorf("%s is tried again after %s, want 10s; it says %+v", name, wait, e)
		}
		next[name] = e.Next
		n.AwaitEvent(name, "Failed", "{web}", "Failed to pull image \""+r.Ref(name+":"))
		n.AwaitEvent(name, "BackOff", "{web}", "Back-off pulling image")
	}

	n.Write("typo.yaml", podFrom("typo", r.Ref("typo:1")))
	n.Await("the name was fixed", node.Ready("typo"))
	if now := time.Now(); now.After(next["typo"]) {
		t.Errorf("another image was only tried at %s, when the first would have been (%s)", now, next["typo"])
	}
	r.Recover()
	r.CutBlob(ownLayer(t, cut), 0, 0)
	n.Await("the registry has recovered", node.Ready("limited", "cut"))
	for _, name := range []string{"limited", "cut"} {
		if e := n.AwaitEvent(name, "Pulled", "Successfully pulled image"); e.Time.Before(next[name]) {
			t.Errorf("%s was pulled at %s, before %s", name, e.Time, next[name])
		}
		replays(t, n, name)
	}
	if seen := course.End(); !slices.Contains(seen, "ImagePullBackOff") || slices.Contains(seen, "CreateContainerError") {
		t.Errorf("the container waited for %q", seen)
	}
}

// Thirty pods that want ten images have each pulled once, three at a time as configured.
func TestPodsShareImages(t *testing.T) {
	t.Parallel()
	const images, atOnce, each = 10, 3, 3
	n := node.New(t, binary, node.Options{Config: fmt.Sprintf("serializeImagePulls: false\nmaxParallelImagePulls: %d", atOnce)})
	n.Start()
	r := registry.New(t)
	layers, stops, names := make([]string, images), make([]*registry.Stop, images), []string{}
	for i := range images {
		image := runnable(t, n, 2000)
		r.Push(t, fmt.Sprintf("app%d:1", i), image)
		layers[i] = ownLayer(t, image)
		stops[i] = r.StopBlob(layers[i], 1000)
		for k := range each {
			name := fmt.Sprintf("p%d-%d", i, k)
			names = append(names, name)
			n.Write(name+".yaml", podFrom(name, r.Ref(fmt.Sprintf("app%d:1", i)), "args: [sleep, 1h]"))
		}
	}
	n.Await("the other pulls queue up", anyReason(fmt.Sprintf("number %d in the queue", images-atOnce)))
	released := map[*registry.Stop]bool{}
	for len(released) < images {
		want := min(len(released)+atOnce, images)
		n.Eventually("the next image is pulled", func() error {
			if got := stopped(stops); len(got) > want {
				t.Fatalf("%d pulls were begun when %d had ended", len(got), len(released))
			} else if len(got) < want {
				return fmt.Errorf("%d pulls were begun, want %d", len(got), want)
			}
			return nil
		})
		for _, s := range stopped(stops) {
			if !released[s] {
				released[s] = true
				s.Release()
				break
			}
		}
	}
	n.Await("all pods run", node.Ready(names...))
	for i := range images {
		counts(t, r, fmt.Sprintf("app%d:1", i), 1)
		if got := r.BlobPulls(layers[i]); got != 1 {
			t.Errorf("the layer of image %d was pulled %d times", i, got)
		}
	}
}

// stopped are those that an answer has come to.
func stopped(stops []*registry.Stop) []*registry.Stop {
	return slices.DeleteFunc(slices.Clone(stops), func(s *registry.Stop) bool {
		select {
		case <-s.Reached():
			return false
		default:
			return true
		}
	})
}

// anyReason is the condition that some pod waits for something with these words.
func anyReason(words string) node.Condition {
	return func(s local.Snapshot) error {
		var all []string
		for _, v := range s.Pods {
			all = append(all, v.Waiting())
		}
		if text := strings.Join(all, "; "); !strings.Contains(text, words) {
			return fmt.Errorf("no pod waits for %q: %s", words, text)
		}
		return nil
	}
}

// Who looks at a pod that waits for an image sees how far that is; an agent that is killed
// meanwhile leaves it to the next.
func TestPullUnderWay(t *testing.T) {
	t.Parallel()
	n := start(t)
	r := registry.New(t)
	large, cut := runnable(t, n, 12_000_000), runnable(t, n, 100_000)
	r.Push(t, "large:1", large)
	r.Push(t, "small:1", runnable(t, n, 1000))
	r.Push(t, "cut:1", cut)
	// containerd counts in megabytes.
	stop := r.StopBlob(ownLayer(t, large), 4_000_000)
	r.SlowBlob(ownLayer(t, large), 3_000_000)
	course := n.Follow("large", func(v local.PodView) string {
		text := v.Waiting()
		return text[max(0, strings.Index(text, "layers")):]
	})
	n.Write("large.yaml", podFrom("large", r.Ref("large:1")))
	const far = "1 of 2 layers, "
	waits := "waiting for image " + r.Ref("large:1") + ": " + far
	n.Await("the pull shows", reasonHas("large", waits, "MB of 1"))
	// Images are pulled one after the other unless configured otherwise.
	n.Write("small.yaml", podFrom("small", r.Ref("small:1")))
	n.Await("the next one waits", reasonHas("small", "waiting for image "+r.Ref("small:1")+": number 1 in the queue"))
	for command, want := range map[string]string{"pods large": "container web: " + waits, "why large": "Container web: " + waits, "pods -o wide": waits} {
		if out, _ := n.Deckhand(strings.Fields(command)...); !strings.Contains(out, want) {
			t.Errorf("deckhand %s doesn't tell %q:\n%s", command, want, out)
		}
	}
	// Who gives up doesn't take the pull from the others.
	n.Write("leaver.yaml", podFrom("leaver", r.Ref("large:1")))
	n.Await("another pod waits for it", reasonHas("leaver", waits))
	n.Remove("leaver.yaml")
	n.Await("it has gone again", gone("leaver"))
	stop.Release()
	n.Await("both are here", node.Ready("large", "small"))
	if got := r.BlobPulls(ownLayer(t, large)); got != 1 {
		t.Errorf("the layer was pulled %d times", got)
	}
	if seen := course.End(); len(slices.DeleteFunc(seen, func(text string) bool { return !strings.HasPrefix(text, "layers, ") })) < 3 {
		t.Errorf("who watched the pull of several seconds saw no more than %q", seen)
	}

	stop = r.StopBlob(ownLayer(t, cut), 1000)
	n.Write("cut.yaml", podFrom("cut", r.Ref("cut:1")))
	reached(t, stop)
	if got := records(t, n, "pulling"); len(got) != 1 || !strings.Contains(got[0], r.Ref("cut:1")) {
		t.Errorf("while an image is pulled, the records of that are %q", got)
	}
	ran := n.RunningIDs()
	n.Kill()
	stop.Release()
	n.Start()
	n.Await("the next agent pulls it", agentIs(n), node.Ready("large", "small", "cut"))
	now := n.RunningIDs()
	delete(now, "cut/web")
	delete(now, "cut-"+node.Name+"/web")
	unchanged(t, ran, now)
	n.Eventually("the records are in order", func() error {
		if got := records(t, n, "pulling"); len(got) > 0 {
			return fmt.Errorf("images seem to be pulled: %q", got)
		}
		if got := records(t, n, "pulled"); !slices.ContainsFunc(got, func(text string) bool {
			return strings.Contains(text, r.Host()+"/cut") && strings.Contains(text, `"nodePodsAccessible":true`)
		}) {
			return fmt.Errorf("the image isn't on record as everybody's: %q", got)
		}
		return nil
	})
}

// records are what the agent keeps about pulls ("pulling") or images ("pulled").
func records(t *testing.T, n *node.Node, kind string) []string {
	t.Helper()
	dir := filepath.Join(n.RootDir, "image_manager", kind)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if len(text) > 0 && strings.HasPrefix(e.Name(), "sha256-") {
			out = append(out, string(text))
		}
	}
	return out
}
