package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

type nodeObject struct {
	metav1.TypeMeta `json:",inline"`
	local.Node      `json:",inline"`
}

// NodeObject returns the node for programs.
func NodeObject(n local.Node) any { return nodeObject{Kind("Node"), n} }

// Node writes the node's properties, its resources and their allocation to pods, similar to `kubectl describe node`.
// Lines fit into width characters where possible; 0 means no limit. warnings are events about the node itself. The
// eviction thresholds are listed if wide is set, or if there is something to say about them.
func Node(w io.Writer, n local.Node, warnings []local.Event, wide bool, width int, now time.Time) error {
	sum := func(of func(*local.NodePod) v1.ResourceList) v1.ResourceList {
		total := v1.ResourceList{}
		for i := range n.Pods {
			for name, q := range of(&n.Pods[i]) {
				was := total[name]
				was.Add(q)
				total[name] = was
			}
		}
		return total
	}
	about := [][]string{{"Name:", n.Name}, {
		"Addresses:", orNone(strings.Join(n.HostIPs, ","))}, {
		"Labels:", orNone(pairs(n.Labels))}, {"Taints:", orNone(taints(n.Taints))}}
	evictions := evictionRows(n.Evictions, now)
	if n.Evictions != nil && !wide && quiet(n.Evictions) {
		about, evictions = append(about, []string{"Resources:", nearest(n.Evictions)}), evictions[:1]
	}
	sections := [][][]string{about, conditionRows(n.Conditions), evictions,
		resourceRows(&n, sum(requestsOf), sum(limitsOf)), nodePodRows(&n), deviceRows(&n), cpuRows(&n),
		differenceRows(&n), warningRows(warnings, now)}
	for i, rows := range sections {
		if i > 0 && len(rows) == 1 {
			continue
		}
		if i > 0 {
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
		}
		table := Table{MaxWidth: width}
		if err := table.Write(w, rows...); err != nil {
			return err
		}
	}
	if len(n.Problems) == 0 {
		return nil
	}
	return writeProblems(w, n.Problems, true, now)
}

// cpuRows are the node's CPUs by their use.
func cpuRows(n *local.Node) [][]string {
	rows := [][]string{{"NUMA NODE", "CPUS", "USE", "NAMESPACE", "NAME", "CONTAINER"}}
	for _, c := range n.CPUs {
		name := c.Name
		if name == "" {
			name = string(c.UID)
		}
		rows = append(rows,
			[]string{strconv.Itoa(c.Node), c.CPUs, strings.ToLower(c.Use), c.Namespace, name, c.Container})
	}
	return rows
}

// differenceRows are the differences between the recorded and the actual assignment of CPUs.
func differenceRows(n *local.Node) [][]string {
	rows := [][]string{{"CPUS PLANNED AGAIN"}}
	for _, text := range n.CPUDifferences {
		rows = append(rows, []string{text})
	}
	return rows
}

// warningsFor is how long a warning about the node is shown.
const warningsFor = time.Hour

// NodeWarnings returns the warnings about the node itself of the last hour (warningsFor).
func NodeWarnings(events []local.Event, node string, now time.Time) []local.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e local.Event) bool {
		return e.Object != "node/"+node || e.Type != v1.EventTypeWarning || now.Sub(e.Time) > warningsFor
	})
}

func warningRows(list []local.Event, now time.Time) [][]string {
	rows := [][]string{{"WARNING", "LAST SEEN", "TIMES", "MESSAGE"}}
	for _, e := range list {
		rows = append(rows, []string{e.Reason, duration.HumanDuration(now.Sub(e.Time)) + " ago",
			strconv.Itoa(max(e.Count, 1)), e.Message})
	}
	return rows
}

func requestsOf(p *local.NodePod) v1.ResourceList { return p.Requests }
func limitsOf(p *local.NodePod) v1.ResourceList   { return p.Limits }

func pairs(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, key+"="+labels[key])
	}
	return strings.Join(list, ",")
}

func taints(list []v1.Taint) string {
	texts := make([]string, len(list))
	for i := range list {
		texts[i] = list[i].ToString()
	}
	return strings.Join(texts, ",")
}

func conditionRows(list []v1.NodeCondition) [][]string {
	rows := [][]string{{"CONDITION", "STATUS", "REASON", "MESSAGE"}}
	for _, c := range list {
		rows = append(rows, []string{string(c.Type), string(c.Status), c.Reason, c.Message})
	}
	return rows
}

// byResource returns the resources of a list in reading order: the standard ones first.
func byResource(list v1.ResourceList) []v1.ResourceName {
	first := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}
	rank := func(name v1.ResourceName) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	return slices.SortedFunc(maps.Keys(list), func(a, b v1.ResourceName) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

func resourceRows(n *local.Node, requested, limits v1.ResourceList) [][]string {
	rows := [][]string{{"RESOURCE", "CAPACITY", "SYSTEM RESERVED", "KUBE RESERVED", "EVICTION", "ALLOCATABLE",
		"REQUESTED", "LIMITS"}}
	for _, name := range byResource(n.Capacity) {
		rows = append(rows, []string{string(name), amount(n.Capacity, name), amount(n.Reserved.System, name),
			amount(n.Reserved.Kube, name), amount(n.Reserved.Eviction, name),
			amount(n.Allocatable, name), part(requested, n.Allocatable, name), part(limits, n.Allocatable, name)})
	}
	return rows
}

// nodePodRows returns the rows of a table of pods. All resources except CPU and memory share one column.
func nodePodRows(n *local.Node) [][]string {
	rows := [][]string{{"NAMESPACE", "POD", "QOS", "CPU REQUESTS", "CPU LIMITS", "MEMORY REQUESTS", "MEMORY LIMITS",
		"OTHER REQUESTS"}}
	for i := range n.Pods {
		p := &n.Pods[i]
		var other []string
		for _, name := range byResource(p.Requests) {
			if q := p.Requests[name]; name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourcePods &&
				!q.IsZero() {
				other = append(other, fmt.Sprintf("%s: %s", name, q.String()))
			}
		}
		rows = append(rows, []string{p.Namespace, cmp.Or(p.Name, string(p.UID)), string(p.QOSClass),
			part(p.Requests, n.Allocatable, v1.ResourceCPU), part(p.Limits, n.Allocatable, v1.ResourceCPU),
			part(p.Requests, n.Allocatable, v1.ResourceMemory), part(p.Limits, n.Allocatable, v1.ResourceMemory),
			strings.Join(other, ", ")})
	}
	return rows
}

// deviceRows returns the rows of a table of the containers' devices. Devices that aren't healthy are marked.
func deviceRows(n *local.Node) [][]string {
	rows := [][]string{{"NAMESPACE", "POD", "CONTAINER", "RESOURCE", "DEVICES"}}
	for i := range n.Pods {
		p := &n.Pods[i]
		for _, container := range slices.Sorted(maps.Keys(p.Devices)) {
			for _, of := range p.Devices[container] {
				ids := make([]string, len(of.Resources))
				for k, d := range of.Resources {
					if ids[k] = string(d.ResourceID); d.Health != v1.ResourceHealthStatusHealthy {
						ids[k] += fmt.Sprintf(" (%s)", d.Health)
					}
				}
				rows = append(rows, []string{p.Namespace, cmp.Or(p.Name, string(p.UID)), container, string(of.Name),
					strings.Join(ids, ", ")})
			}
		}
	}
	return rows
}

func amount(list v1.ResourceList, name v1.ResourceName) string {
	q := list[name]
	return q.String()
}

// part formats an amount, and its percentage of the allocatable amount.
func part(list, all v1.ResourceList, name v1.ResourceName) string {
	q, whole := list[name], all[name]
	return fmt.Sprintf("%s (%d%%)", q.String(), percent(&q, &whole))
}

func percent(q, whole *resource.Quantity) int64 {
	if whole.IsZero() {
		return 0
	}
	return int64(q.AsApproximateFloat64() / whole.AsApproximateFloat64() * 100)
}

// NodeListRows returns the rows of a table with only this node, in kubectl's columns, the heading first.
func NodeListRows(n *local.Node, agent *local.AgentInfo, wide bool, now time.Time) [][]string {
	status := "Unknown"
	for _, c := range n.Conditions {
		if c.Type == v1.NodeReady {
			if status = "NotReady"; c.Status == v1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	rows := [][]string{{"NAME", "STATUS", "AGE", "VERSION"}, {
		n.Name, status, podstatus.Since(agent.Started, now), agent.Version}}
	if wide {
		rows[0] = append(rows[0], "INTERNAL-IP", "TAINTS", "CONTAINER-RUNTIME")
		rows[1] = append(rows[1], orNone(strings.Join(n.HostIPs, ",")), orNone(taints(n.Taints)),
			orNone(strings.Trim(agent.RuntimeName+"://"+agent.RuntimeVersion, ":/")))
	}
	return rows
}
