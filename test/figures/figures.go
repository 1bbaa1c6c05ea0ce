// Package figures holds what deckhand says that pods use against what a kubelet says of the same pods, in its summary and as metrics.
package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Pages are where an agent says it.
var Pages = []string{"/stats/summary", "/stats/summary?only_cpu_and_memory=true", "/metrics/cadvisor", "/metrics/resource"}

// Said is what an agent said, by page.
type Said map[string][]byte

// Comparison says which pods are compared.
type Comparison struct {
	// Idle reports whether a pod of this name does nothing once it runs: its figures have to be the same.
	Idle func(pod string) bool
	// Unsettled reports whether there is no telling what is there of a pod.
	Unsettled func(pod string) bool
	// Except are parts of paths in summaries, and names of metrics, that differ, of the control groups of pods alone with {pod} behind: it says why.
	Except map[string]string
}

// Measured is an error as long as figures of pods that do nothing are missing, or older than that: the kubelet measures every ten seconds or so, one
// container after the other.
func (c Comparison) Measured(said Said, pods int, since time.Time) error {
	for _, page := range Pages[:2] {
		var summary statsapi.Summary
		if err := json.Unmarshal(said[page], &summary); err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		n := 0
		for i := range summary.Pods {
			p := &summary.Pods[i]
			if !c.Idle(p.PodRef.Name) {
				continue
			}
			n++
			for _, one := range append(p.Containers, statsapi.ContainerStats{Name: "all", CPU: p.CPU, Memory: p.Memory}) {
				if one.CPU == nil || one.Memory == nil || one.CPU.UsageNanoCores == nil || !one.CPU.Time.After(since) || !one.Memory.Time.After(since) {
					return fmt.Errorf("%s has of %s of %s %+v, %+v", page, one.Name, p.PodRef.Name, one.CPU, one.Memory)
				}
			}
			// It finds control groups by and by, and knows last whose they are: of the pod, its sandbox and its containers.
			groups := 0
			for line := range bytes.Lines(said[Pages[2]]) {
				if bytes.HasPrefix(line, []byte("container_memory_usage_bytes{")) && bytes.Contains(line, fmt.Appendf(nil, `namespace=%q,pod=%q}`, p.PodRef.Namespace, p.PodRef.Name)) {
					groups++
					// A sample says when it was taken; the first one of a sandbox may be of the program that starts it.
					if f := bytes.Fields(line[bytes.LastIndexByte(line, '}')+1:]); len(f) == 2 {
						if at, err := strconv.ParseInt(string(f[1]), 10, 64); err != nil || !time.UnixMilli(at).After(since) {
							return fmt.Errorf("%s has an old sample of %s: %s", Pages[2], p.PodRef.Name, line)
						}
					}
				}
			}
			if groups < 2+len(p.Containers) {
				return fmt.Errorf("%s has %d control groups of %s", Pages[2], groups, p.PodRef.Name)
			}
		}
		if n != pods {
			return fmt.Errorf("%s has %d pods that do nothing, want %d", page, n, pods)
		}
	}
	return nil
}

// Compare holds an agent's pages against the kubelet's.
func (c Comparison) Compare(t testing.TB, kubelet, own Said) {
	t.Helper()
	for _, page := range Pages {
		if strings.HasPrefix(page, "/stats/") {
			c.summaries(t, page, summary(t, kubelet[page]), summary(t, own[page]))
		} else {
			c.metrics(t, page, kubelet[page], own[page])
		}
	}
}

// Differs is what each kubelet says otherwise, whatever the machine, and why.
var differs = map[string]string{
	".psi.": "on cgroup v2 without pressure the kubelet has none of containers, and zeros elsewhere",
	".io.":  "the kubelet has some with times of nothing",
	// It has none of these of containers: cAdvisor doesn't measure containerd's disk use.
	"container_fs_limit_bytes": "",
	"container_fs_usage_bytes": "",
	"container_last_seen":      "when it was measured",
	// It has 0 of pods, whose processes are all in containers.
	"container_processes{pod}": "", "container_file_descriptors{pod}": "", "container_sockets{pod}": "",
	".process_stats.": "it has none of pods whose runtime is containerd",
}

func (c Comparison) excepted(what string) bool {
	for _, list := range []map[string]string{differs, c.Except} {
		for part := range list {
			if what == part || strings.HasPrefix(part, ".") && strings.HasSuffix(what, part) || strings.HasSuffix(part, ".") && strings.Contains(what, part) {
				return true
			}
		}
	}
	return false
}

// summary is that of an agent: values by their paths, such as pods.k-plain-node1.containers.web.memory.usageBytes.
func summary(t testing.TB, text []byte) map[string]any {
	t.Helper()
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatalf("a summary: %v: %.200s", err, text)
	}
	values := map[string]any{}
	flatten(values, "", tree)
	return values
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

// podOf is the pod that a path is of; empty for none.
func podOf(path string) string {
	rest, ok := strings.CutPrefix(path, "pods.")
	if !ok {
		return ""
	}
	name, _, _ := strings.Cut(rest, ".")
	return name
}

// summaries have of each value as much, and of pods that do nothing the same figures, within 5 percent or what the kernel charges ahead.
func (c Comparison) summaries(t testing.TB, page string, kubelet, own map[string]any) {
	t.Helper()
	shape := func(values map[string]any) map[string]bool {
		shape := map[string]bool{}
		for path := range values {
			if !c.excepted(path) && !c.Unsettled(podOf(path)) {
				shape[path] = true
			}
		}
		// Where there is no limit it says that 0 is available, which the API has left out.
		maps.DeleteFunc(shape, func(path string, _ bool) bool {
			return strings.Contains(path, ".containers.") && (strings.HasSuffix(path, ".swapAvailableBytes") || strings.HasSuffix(path, ".memory.availableBytes") && values[path] == 0.0)
		})
		return shape
	}
	if diff := cmp.Diff(shape(kubelet), shape(own)); diff != "" {
		t.Errorf("%s (-kubelet's +deckhand's):\n%s", page, diff)
	}
	compared := 0
	for path, v := range kubelet {
		theirs, number := v.(float64)
		ofPod := c.Idle(podOf(path)) && !c.excepted(path) && !strings.HasSuffix(path, "availableBytes") && !strings.HasSuffix(path, "inodesFree") &&
			!strings.HasSuffix(path, "usageNanoCores") && !strings.Contains(path, ".rootfs.") // which containerd looks at each ten seconds
		ofMachine := strings.HasPrefix(path, "node.") && (strings.HasSuffix(path, "capacityBytes") || strings.HasSuffix(path, ".inodes"))
		ours, has := own[path].(float64)
		if !number || !has || !ofPod && !ofMachine {
			continue
		}
		compared++
		if allowed := allowance(path, theirs); math.Abs(theirs-ours) > allowed {
			t.Errorf("%s: %s is %v with the kubelet, %v with deckhand", page, path, theirs, ours)
		}
	}
	if compared < 10 {
		t.Errorf("%s: %d figures were compared", page, compared)
	}
}

// allowance is by how much two figures of the same may differ that were read one after the other.
func allowance(what string, value float64) float64 {
	five := 0.05 * math.Abs(value)
	switch {
	case strings.Contains(what, "memory") && (strings.HasSuffix(what, "Bytes") || strings.HasSuffix(what, "_bytes") || !strings.Contains(what, "_total") && !strings.Contains(what, "aults")):
		// The kernel charges a group ahead, for each CPU up to 64 pages, and takes back what wasn't used when it likes.
		return max(five, float64(64*os.Getpagesize()*runtime.NumCPU()))
	case strings.Contains(what, "network"):
		return max(five, 4<<10) // neighbours ask who is there
	case strings.Contains(what, "threads"), strings.Contains(what, "descriptors"), strings.Contains(what, "sockets"), strings.Contains(what, "periods"):
		return max(five, 5) // a program that does nothing looks for work now and then, and somebody may just ask it
	case strings.Contains(what, "aults"), strings.Contains(what, "memory_failures"):
		return max(five, 500)
	case strings.HasSuffix(what, "_seconds_total"):
		return max(five, 0.011) // of a clock of 10 ms
	case strings.HasSuffix(what, "start_time_seconds"):
		return 60 // the kubelet has that of the control group, which is made first, on a slow machine half a minute
	case strings.HasSuffix(what, "usedBytes"), strings.HasSuffix(what, "inodesUsed"):
		return max(five, 16<<10) // where it keeps a container's hosts file is the agent's
	}
	return five
}

// families are the metrics of a page, by name.
func families(t testing.TB, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("metrics: %v: %.200s", err, text)
	}
	return all
}

// metrics has the series of pods that do nothing be the same, with all their labels.
func (c Comparison) metrics(t testing.TB, page string, kubelet, own []byte) {
	t.Helper()
	theirs, ours := c.series(t, kubelet), c.series(t, own)
	have := families(t, own)
	compared := 0
	for key, v := range theirs {
		name, _, _ := strings.Cut(key, "{")
		if have[name] == nil { // that deckhand hasn't it at all is for the list of metrics to say
			continue
		}
		mine, ok := ours[key]
		if !ok {
			t.Errorf("%s: deckhand hasn't %s, %v with the kubelet", page, key, v)
			continue
		}
		compared++
		if math.Abs(mine-v) > allowance(name, v) {
			t.Errorf("%s: %s is %v with the kubelet, %v with deckhand", page, key, v, mine)
		}
	}
	for key, v := range ours {
		if _, ok := theirs[key]; !ok {
			t.Errorf("%s: the kubelet hasn't %s, %v with deckhand", page, key, v)
		}
	}
	if compared < 10 {
		t.Errorf("%s: %d series were compared", page, compared)
	}
}

// series are those of pods that do nothing, by name and labels.
func (c Comparison) series(t testing.TB, text []byte) map[string]float64 {
	t.Helper()
	list := map[string]float64{}
	for name, f := range families(t, text) {
		if c.excepted(name) {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			var pod string
			for _, l := range m.Label {
				if l.GetName() == "pod" {
					pod = l.GetValue()
				}
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			ofContainer := !slices.Contains(labels, `name=""`)
			if c.Idle(pod) && (ofContainer || !c.excepted(name+"{pod}")) {
				slices.Sort(labels)
				list[name+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return list
}

// WithoutPressure reports metrics of pressure where the kernel has none of groups: zeros would say that nobody waits. The summary has zeros, as the
// kubelet's, whose clients read the structure.
func WithoutPressure(t testing.TB, own Said) {
	t.Helper()
	for page, text := range own {
		if bytes.Contains(text, []byte("container_pressure_")) {
			t.Errorf("%s has pressure, which this kernel hasn't", page)
		}
	}
}

// Listed reports which metrics of a page aren't, with their type and labels, in lists of lines NAME TYPE LABELS.
func Listed(t testing.TB, page string, text []byte, lists ...[]byte) {
	t.Helper()
	want := map[string]string{}
	for line := range strings.Lines(string(bytes.Join(lists, nil))) {
		line, _, _ = strings.Cut(line, ": ") // why deckhand hasn't it
		if f := strings.Fields(line); !strings.HasPrefix(line, "#") && len(f) > 2 {
			want[f[0]] += " " + f[1] + " " + f[2] + " "
		}
	}
	for name, f := range families(t, text) {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		got := " " + strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",") + " "
		if len(labels) == 0 {
			got = " " + strings.ToLower(f.GetType().String()) + " - "
		}
		if !strings.Contains(want[name], got) {
			t.Errorf("%s has %s as%s, the list as%s", page, name, got, want[name])
		}
	}
}
