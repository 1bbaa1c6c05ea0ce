package takeover

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
)

// summary is what an agent serves at /stats/summary: values by their paths, such as pods.k-plain-node1.containers.web.memory.usageBytes.
func (r *rig) summary(query string) map[string]any {
	r.t.Helper()
	response, err := http.Get(r.n.ReadOnlyURL("stats/summary" + query))
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var tree any
	if err := json.NewDecoder(response.Body).Decode(&tree); err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("%s: %v", response.Status, err)
	}
	values := map[string]any{}
	flatten(values, "", tree)
	return values
}

// idle reports whether a path is of a pod that does nothing once it runs.
func idle(path string) bool {
	return strings.Contains(path, "-plain-") || strings.Contains(path, "-init-") || strings.Contains(path, "-guaranteed-")
}

// awaitMeasured waits until all figures of pods that do nothing are newer than their start: the kubelet measures every ten seconds or so.
func (r *rig) awaitMeasured() {
	r.t.Helper()
	since := time.Now()
	r.n.Eventually("the kubelet has measured its pods", func() error {
		for path, v := range r.summary("") {
			if !idle(path) || !strings.HasSuffix(path, ".cpu.time") && !strings.HasSuffix(path, ".memory.time") {
				continue
			}
			if at, err := time.Parse(time.RFC3339, v.(string)); err != nil || !at.After(since) {
				return fmt.Errorf("%s is %v, before %v: %v", path, v, since, err)
			}
		}
		return nil
	})
}

func flatten(into map[string]any, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, child := range v {
			flatten(into, strings.TrimPrefix(path+"."+key, "."), child)
		}
	case []any:
		for _, child := range v {
			m := child.(map[string]any)
			name := m["name"]
			if ref, ok := m["podRef"].(map[string]any); ok {
				name = ref["name"]
			}
			flatten(into, fmt.Sprintf("%s.%v", path, name), child)
		}
	default:
		into[path] = v
	}
}

// compareSummaries holds deckhand's summary against the kubelet's of the same pods: what there is of a value each, and the figures of pods that do
// nothing, within 5 percent or what the kernel charges ahead.
func (r *rig) compareSummaries(kubelet, own map[string]any) {
	r.t.Helper()
	// What differs, and why.
	except := []string{
		".psi.", ".io.", // the kubelet has zeros, and times of nothing, where the kernel has no pressure of groups
		".process_stats.", ".network.", ".rootfs.", // it looks for containerd at /run/containerd, and for nothing of it elsewhere
		".volume.", ".ephemeral-storage.", // it measures volumes after a minute
	}
	shape := func(values map[string]any) map[string]bool {
		shape := map[string]bool{}
		for path := range values {
			excepted := slices.ContainsFunc(except, func(e string) bool { return strings.Contains(path, e) })
			if !excepted && !strings.Contains(path, crashing) {
				shape[path] = true
			}
		}
		// Where there is no limit it says that 0 is available, which the API has left out.
		maps.DeleteFunc(shape, func(path string, _ bool) bool {
			return strings.Contains(path, ".containers.") && (strings.HasSuffix(path, ".swapAvailableBytes") || strings.HasSuffix(path, ".memory.availableBytes") && !strings.Contains(path, "guaranteed"))
		})
		return shape
	}
	if diff := cmp.Diff(shape(kubelet), shape(own)); diff != "" {
		r.t.Errorf("the summary (-kubelet's +deckhand's):\n%s", diff)
	}
	// The kernel charges a group ahead, for each CPU up to 64 pages, and takes back what wasn't used when it likes.
	stock := float64(64 * os.Getpagesize() * runtime.NumCPU())
	compared := 0
	for path, v := range kubelet {
		constant := strings.HasSuffix(path, "Bytes") && strings.Contains(path, ".memory.") && !strings.Contains(path, "availableBytes") || strings.HasSuffix(path, "usageCoreNanoSeconds") ||
			strings.HasPrefix(path, "node.") && strings.HasSuffix(path, "capacityBytes")
		if !constant || !idle(path) && !strings.HasPrefix(path, "node.") || strings.HasPrefix(path, "node.") && !strings.HasSuffix(path, "capacityBytes") {
			continue
		}
		compared++
		theirs, ours := v.(float64), own[path].(float64)
		allowed := 0.05 * theirs
		if strings.Contains(path, ".memory.") {
			allowed = max(allowed, stock)
		}
		if math.Abs(theirs-ours) > allowed {
			r.t.Errorf("%s is %.0f in the kubelet's summary, %.0f in deckhand's", path, theirs, ours)
		}
	}
	if compared < 20 {
		r.t.Errorf("%d figures were compared", compared)
	}
}
