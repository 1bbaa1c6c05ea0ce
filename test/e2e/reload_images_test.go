package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// unused pulls an image that nobody needs and makes settings by which it has to go.
func (w *watched) unused(t *testing.T, name string, s settings) {
	t.Helper()
	w.registry.Push(t, name, runnable(t, w.Node, 1000))
	mustPull(t, w.Node, w.registry.Ref(name))
	if err := imagesAre(w.Node, []string{w.registry.Ref(name)}, nil)(); err != nil {
		t.Fatal(err) // from here on, the image is known
	}
	w.set(t, s)
}

// goes waits until an image was collected, for this reason.
func (w *watched) goes(t *testing.T, name, reason string) {
	t.Helper()
	w.Eventually("image "+name+" goes", imagesAre(w.Node, []string{node.Image}, []string{w.registry.Ref(name)}))
	w.Eventually("it is counted", answers(w.ReadOnlyURL("metrics"), fmt.Sprintf("\nkubelet_image_garbage_collected_total{reason=%q} ", reason)))
}

// parallelPulls lets one pull after the other begin, while none of them ends.
func (w *watched) parallelPulls(t *testing.T) {
	t.Helper()
	var stops []*registry.Stop
	names := []string{"a", "b", "c"}
	for _, name := range names {
		image := runnable(t, w.Node, 2000)
		w.registry.Push(t, name+":1", image)
		stops = append(stops, w.registry.StopBlob(ownLayer(t, image), 1000))
		w.Write(name+".yaml", podFrom(name, w.registry.Ref(name+":1")))
	}
	begun := func(want int) func() error {
		return func() error {
			if got := len(stopped(stops)); got != want {
				return fmt.Errorf("%d pulls have begun, want %d", got, want)
			}
			return nil
		}
	}
	w.Await("two pulls wait", anyReason("number 2 in the queue"))
	w.Eventually("one goes on", begun(1))
	w.set(t, settings{"serializeImagePulls": "false", "maxParallelImagePulls": "2"})
	w.Eventually("two go on", begun(2))
	w.Await("one waits", anyReason("number 1 in the queue"))
	w.set(t, settings{"maxParallelImagePulls": "3"})
	w.Eventually("all go on", begun(3))
	for _, stop := range stops {
		stop.Release()
	}
	w.Await("the pods run", node.Ready(names...))
	for _, name := range names {
		w.Remove(name + ".yaml")
	}
}

// pullRate has a limit come, which some pulls fail of, and go, which others wait for.
func (w *watched) pullRate(t *testing.T) {
	t.Helper()
	delete(w.file, "maxParallelImagePulls")
	if err := os.Remove(filepath.Join(w.dir, burstFile)); err != nil {
		t.Fatal(err)
	}
	w.set(t, settings{"registryPullQPS": "1", "registryBurst": "1"})
	// Who would have to wait for more than 10 s fails.
	const wanted, last = 16, 9 * time.Second
	client := local.NewClient(local.SocketPath(w.RootDir))
	ctx, cancel := context.WithTimeout(t.Context(), node.Deadline)
	defer cancel()
	ends := make(chan string, wanted)
	began := time.Now()
	for i := range wanted {
		go func() {
			var end error
			for _, end = range client.PullImage(ctx, w.registry.Ref(fmt.Sprintf("none%d:1", i))) {
			}
			ends <- fmt.Sprint(end)
		}()
	}
	var reported []string
	for len(reported) < wanted && !slices.ContainsFunc(reported, func(end string) bool { return strings.Contains(end, "pull QPS exceeded") }) {
		reported = append(reported, <-ends)
	}
	had := len(reported)
	w.set(t, settings{"registryPullQPS": "0"})
	for len(reported) < wanted {
		reported = append(reported, <-ends)
	}
	if took := time.Since(began); had == wanted || took > last {
		t.Errorf("%d of %d pulls had ended before there was no limit any more, the last ended after %s: want that in less than %s, and one that the limit failed among\n%q", had, wanted, took, last, reported)
	}
}
