package agent_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
)

// TestNothingCanBeWatched: an agent whose user has no inotify instance or watch left starts, reads manifests at intervals,
// says so once, and watches them when it can, all with one instance.
func TestNothingCanBeWatched(t *testing.T) {
	t.Run("no instance", func(t *testing.T) {
		t.Parallel()
		testUnwatched(t, filewatchtest.Limits{Watches: filewatchtest.Plenty}, "sysctl -w user.max_inotify_instances=1024")
	})
	t.Run("no watch", func(t *testing.T) {
		t.Parallel()
		testUnwatched(t, filewatchtest.Limits{Instances: 1}, "sysctl -w user.max_inotify_watches=524288")
	})
}

func testUnwatched(t *testing.T, limits filewatchtest.Limits, advice string) {
	filewatchtest.Run(t, limits, func(t *testing.T) {
		r := newRig(t)
		var mu sync.Mutex
		var lines []string
		r.log = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{})
		logged := func(text string) (found []string) {
			mu.Lock()
			defer mu.Unlock()
			for _, line := range lines {
				if strings.Contains(line, text) {
					found = append(found, line)
				}
			}
			return found
		}
		const spec = "  containers:\n  - {name: main, image: IMAGE}\n"
		r.want("a", spec)
		r.up()
		r.await("the pod runs", r.running("a/main"))
		r.want("b", spec)
		r.await("a pod that is added runs", r.running("a/main", "b/main"))
		r.unwant("a")
		r.await("a pod that is removed is stopped", r.nothing("a"))
		if found := logged("inotify"); len(found) != 1 || !strings.Contains(found[0], advice) {
			t.Errorf("logged %q", found)
		}
		if n, watches := filewatchtest.Count(t); n > limits.Instances || watches > 0 {
			t.Errorf("%d instances with %d watches", n, watches)
		}
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty})
		r.await("watching is logged", func() string {
			if len(logged("watched for changes again")) == 1 {
				return ""
			}
			return "not yet"
		})
		began := time.Now()
		r.want("c", spec)
		r.await("the next pod runs", r.running("b/main", "c/main"))
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it was noticed after %s: not by an event", took)
		}
		if n, watches := filewatchtest.Count(t); n != 1 || watches == 0 {
			t.Errorf("%d instances with %d watches", n, watches)
		}
		if found := logged("inotify"); len(found) != 1 {
			t.Errorf("logged %q", found)
		}
	})
}
