package takeover

import (
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/test/figures"
)

// said is what the agent says that pods use.
func (r *rig) said() figures.Said {
	r.t.Helper()
	said := figures.Said{}
	for _, page := range figures.Pages {
		said[page] = r.page(page)
	}
	return said
}

// page is what the agent serves at a path.
func (r *rig) page(path string) []byte {
	r.t.Helper()
	response, err := http.Get(r.n.ReadOnlyURL(strings.TrimPrefix(path, "/")))
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %s, %v", path, response.Status, err)
	}
	return text
}

// idle reports whether a pod does nothing once it runs.
func idle(pod string) bool {
	return strings.Contains(pod, "-plain-") || strings.Contains(pod, "-init-") || strings.Contains(pod, "-guaranteed-")
}

// idlePods is how many of them there are.
const idlePods = 3

// compared are the figures of pods that do nothing.
var compared = figures.Comparison{
	Idle:      idle,
	Unsettled: func(pod string) bool { return strings.Contains(pod, crashing) },
	Except: map[string]string{
		".volume.": "the kubelet measures volumes after a minute", ".ephemeral-storage.": "and so it does this",
		"pods.k-host-network-node1.network.": "a pod on the host's network has none of its own",
		// On cgroup v1:
		".memory.pageFaults": "the kubelet has none of what containers of a pod have done", "container_memory_failures_total{pod}": "as before",
		"container_spec_memory_swap_limit_bytes": "it counts memory in, as the kernel's file does",
		".swap.swapAvailableBytes":               "and so it does here",
		"container_swap_limit_bytes":             "it has 0 where there is no limit",
	},
}

// measured is what the kubelet says once all figures of pods that do nothing are newer than now.
func (r *rig) measured() (said figures.Said) {
	r.t.Helper()
	since := time.Now()
	r.n.Eventually("the kubelet has measured its pods", func() error {
		said = r.said()
		return compared.Measured(said, idlePods, since)
	})
	return said
}
