package show

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// PodOptions select pods, and their output format.
type PodOptions struct {
	// Format is json, yaml, name, wide, a format that CheckFormat accepts, or empty for the plain table.
	Format string
	// Namespace restricts the pods to one namespace; all if empty.
	Namespace string
	// Names restricts the pods to these; all if empty.
	Names []string
	// Exact disables prefixes of names.
	Exact bool
	// Selector restricts the pods by their labels, unless it is nil.
	Selector labels.Selector
	// Fields restricts the pods by their fields, unless it is nil.
	Fields fields.Selector
	// LabelColumns are labels with a column each; ShowLabels shows all labels in one column.
	LabelColumns []string
	ShowLabels   bool
	// SortBy is the path of the field to sort by; if empty, pods are sorted by namespace and name.
	SortBy string
	// NoHeaders omits the heading.
	NoHeaders bool
	// Containers shows containers as rows below their pod.
	Containers bool
	// Width is the number of characters after which lines of the plain table are cut; 0 means no limit.
	Width int
	Now   func() time.Time
}

// PodList prints pods in one of the formats.
type PodList struct {
	opts PodOptions
	rows rowMaker
}

// NewPodList returns a PodList.
func NewPodList(opts PodOptions) *PodList {
	l := &PodList{opts: opts,
		rows: rowMaker{now: opts.Now, namespaced: opts.Namespace != "", wide: opts.Format == "wide",
			columns: opts.LabelColumns, showLabels: opts.ShowLabels}}
	if !l.rows.wide {
		l.rows.MaxWidth = opts.Width
	}
	return l
}

// Choose returns the selected pods, and an error for each name without a pod.
func (l *PodList) Choose(s local.Snapshot) ([]local.PodView, error) {
	var errs []error
	named := map[*v1.Pod]bool{}
	for _, name := range l.opts.Names {
		found, err := findPods(s, l.opts.Namespace, name, l.opts.Exact)
		if err != nil {
			errs = append(errs, err)
		}
		for _, p := range found {
			named[p] = true
		}
	}
	views := slices.DeleteFunc(slices.Clone(s.Pods), func(v local.PodView) bool {
		return l.opts.Namespace != "" && v.Pod.Namespace != l.opts.Namespace ||
			len(l.opts.Names) > 0 && !named[v.Pod] ||
			l.opts.Selector != nil && !l.opts.Selector.Matches(labels.Set(v.Pod.Labels)) ||
			l.opts.Fields != nil && !l.opts.Fields.Matches(podFields(&v))
	})
	if l.opts.SortBy != "" {
		errs = append(errs, sortBy(views, l.opts.SortBy, func(v local.PodView) any { return wholePod(v.Pod) }))
	}
	return views, errors.Join(errs...)
}

// Print prints the pods of a snapshot to out. It prints problems of manifests, and a message if there are no pods, to
// notes.
func (l *PodList) Print(out, notes io.Writer, s local.Snapshot) error {
	views, missing := l.Choose(s)
	var err error
	switch {
	case l.opts.Format == "name":
		err = writeNames(out, views)
	case l.machine() && len(l.opts.Names) == 1 && len(views) == 1:
		_, err = as(out, l.opts.Format, wholePod(views[0].Pod), !l.opts.NoHeaders)
	case l.machine() && missing != nil && len(views) == 0: // the error is enough
	case l.machine():
		_, err = as(out, l.opts.Format, ListOf(wholePods(views)), !l.opts.NoHeaders)
	default:
		err = l.table(out, notes, views, s.Problems)
	}
	return errors.Join(err, missing)
}

// machine reports whether the output is for programs.
func (l *PodList) machine() bool {
	return !slices.Contains([]string{"", "wide", "name"}, l.opts.Format)
}

func (l *PodList) table(out, notes io.Writer, views []local.PodView, problems []pod.Problem) error {
	if len(views) == 0 && len(l.opts.Names) == 0 {
		where := ""
		if l.opts.Namespace != "" {
			where = " in namespace " + l.opts.Namespace
		}
		which := ""
		if l.opts.Selector != nil && !l.opts.Selector.Empty() {
			which = " with labels " + l.opts.Selector.String()
		}
		if l.opts.Fields != nil {
			which += " with fields " + l.opts.Fields.String()
		}
		if _, err := fmt.Fprintf(notes, "No pods%s%s.\n", which, where); err != nil {
			return err
		}
	}
	if len(views) > 0 {
		rows := l.podRows(views)
		if !l.opts.NoHeaders {
			rows = append([][]string{l.rows.header()}, rows...)
		}
		if err := l.rows.Write(out, rows...); err != nil {
			return err
		}
	}
	problems = slices.DeleteFunc(slices.Clone(problems), func(p pod.Problem) bool {
		return l.opts.Namespace != "" && p.Pod != "" && !strings.HasPrefix(p.Pod, l.opts.Namespace+"/")
	})
	if len(problems) == 0 || len(l.opts.Names) > 0 || l.opts.Selector != nil || l.opts.Fields != nil {
		return nil
	}
	return writeProblems(notes, problems, len(views) > 0, l.rows.now())
}

// podRows returns the rows of pods and, if requested, of their containers.
func (l *PodList) podRows(views []local.PodView) [][]string {
	var rows [][]string
	for i := range views {
		rows = append(rows, l.rows.pod(&views[i]))
		if l.opts.Containers {
			rows = append(rows, l.rows.containers(views[i].Pod)...)
		}
	}
	return rows
}

// writeProblems prints the problems of the sources of pods.
func writeProblems(out io.Writer, problems []pod.Problem, below bool, now time.Time) error {
	var text strings.Builder
	if below {
		text.WriteString("\n")
	}
	text.WriteString("Problems:\n")
	problems, more := FirstProblems(problems)
	for _, p := range problems {
		text.WriteString("  " + terminal.Line(p.Origin))
		if p.Pod != "" {
			text.WriteString(" (pod " + terminal.Line(p.Pod) + ")")
		}
		if !p.Since.IsZero() {
			text.WriteString(", for " + podstatus.Since(p.Since, now))
		}
		text.WriteString(":\n")
		for line := range strings.Lines(strings.TrimSpace(p.Message)) {
			text.WriteString("    " + terminal.Keep(strings.TrimSuffix(line, "\n")) + "\n")
		}
		if p.Advice != "" {
			text.WriteString("    you can: " + terminal.Line(p.Advice) + "\n")
		}
	}
	if more != "" {
		text.WriteString("  " + more + "\n")
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// mostProblems is the maximum number of problems of manifests that are printed.
const mostProblems = 10

// FirstProblems returns the problems to print, and a text about the others; empty if there are none.
func FirstProblems(all []pod.Problem) (first []pod.Problem, more string) {
	if len(all) <= mostProblems {
		return all, ""
	}
	return all[:mostProblems],
		fmt.Sprintf("and %d more; `deckhand why -o json` has all %d", len(all)-mostProblems, len(all))
}

func writeNames(out io.Writer, views []local.PodView) error {
	for _, view := range views {
		if _, err := fmt.Fprintln(out, "pod/"+terminal.Line(view.Pod.Name)); err != nil {
			return err
		}
	}
	return nil
}

// wholePod returns the pod with its apiVersion and kind.
func wholePod(p *v1.Pod) *v1.Pod {
	whole := *p
	whole.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return &whole
}

// wholePods returns the pods with their apiVersion and kind.
func wholePods(views []local.PodView) []*v1.Pod {
	pods := make([]*v1.Pod, len(views))
	for i := range views {
		pods[i] = wholePod(views[i].Pod)
	}
	return pods
}

// PodFields are the fields of pods that --field-selector supports: those of the API
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/).
var PodFields = []string{"metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy",
	"spec.schedulerName", "spec.serviceAccountName",
	"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"}

func podFields(v *local.PodView) fields.Set {
	p := v.Pod
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return fields.Set{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName,
		"spec.restartPolicy": string(p.Spec.RestartPolicy),
		"spec.schedulerName": p.Spec.SchedulerName, "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase":     string(p.Status.Phase), "status.podIP": p.Status.PodIP,
		"status.podIPs": strings.Join(ips, ","), "status.nominatedNodeName": p.Status.NominatedNodeName,
	}
}
