package show

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// PodOptions say which pods to print, and how.
type PodOptions struct {
	// Format is json, yaml, name, wide or, for the plain table, empty.
	Format string
	// Namespace restricts the pods to those of one; all if empty.
	Namespace string
	// Names restricts the pods to these; all if empty.
	Names []string
	// Containers shows containers as rows below their pod.
	Containers bool
	// Width cuts the lines of the plain table, unless 0.
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
	l := &PodList{opts: opts, rows: rowMaker{now: opts.Now, namespaced: opts.Namespace != "", wide: opts.Format == "wide"}}
	if !l.rows.wide {
		l.rows.MaxWidth = opts.Width
	}
	return l
}

// choose returns the pods that were asked for, and an error for each name that no pod has.
func (l *PodList) choose(s local.Snapshot) ([]local.PodView, error) {
	var views []local.PodView
	missing := map[string]bool{}
	for _, name := range l.opts.Names {
		missing[name] = true
	}
	for _, view := range s.Pods {
		if l.opts.Namespace != "" && view.Pod.Namespace != l.opts.Namespace {
			continue
		}
		chosen := len(l.opts.Names) == 0
		for _, name := range l.opts.Names {
			if matchesPod(view.Pod, name, s.Node) {
				chosen = true
				delete(missing, name)
			}
		}
		if chosen {
			views = append(views, view)
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		errs = append(errs, fmt.Errorf("pod %q not found", name))
	}
	return views, errors.Join(errs...)
}

// Print prints the pods of a snapshot to out. If there are none it says so on notes.
func (l *PodList) Print(out, notes io.Writer, s local.Snapshot) error {
	views, missing := l.choose(s)
	var err error
	switch {
	case l.opts.Format == "name":
		err = writeNames(out, views)
	case l.machine() && len(l.opts.Names) == 1 && len(views) == 1:
		_, err = As(out, l.opts.Format, wholePod(views[0].Pod))
	case l.machine():
		_, err = As(out, l.opts.Format, listOf(views))
	default:
		err = l.table(out, notes, views, s.Problems)
	}
	return errors.Join(err, missing)
}

// machine reports whether what is printed is for machines.
func (l *PodList) machine() bool { return l.opts.Format == "json" || l.opts.Format == "yaml" }

func (l *PodList) table(out, notes io.Writer, views []local.PodView, problems []pod.Problem) error {
	if len(views) == 0 && len(l.opts.Names) == 0 {
		where := ""
		if l.opts.Namespace != "" {
			where = " in namespace " + l.opts.Namespace
		}
		if _, err := fmt.Fprintf(notes, "No pods%s.\n", where); err != nil {
			return err
		}
	}
	if len(views) > 0 {
		if err := l.rows.Write(out, append([][]string{l.rows.header()}, l.podRows(views)...)...); err != nil {
			return err
		}
	}
	problems = slices.DeleteFunc(slices.Clone(problems), func(p pod.Problem) bool {
		return l.opts.Namespace != "" && p.Pod != "" && !strings.HasPrefix(p.Pod, l.opts.Namespace+"/")
	})
	if len(problems) == 0 || len(l.opts.Names) > 0 {
		return nil
	}
	return l.problems(out, problems, len(views) > 0)
}

// podRows are the rows of pods and, where wanted, of their containers.
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

// problems lists what is wrong with the sources, each in as many lines as it takes.
func (l *PodList) problems(out io.Writer, problems []pod.Problem, below bool) error {
	var text strings.Builder
	if below {
		text.WriteString("\n")
	}
	text.WriteString("Problems:\n")
	for _, p := range problems {
		text.WriteString("  " + terminal.Line(p.Origin))
		if p.Pod != "" {
			text.WriteString(" (pod " + terminal.Line(p.Pod) + ")")
		}
		if !p.Since.IsZero() {
			text.WriteString(", for " + podstatus.Since(p.Since, l.rows.now()))
		}
		text.WriteString(":\n")
		for line := range strings.Lines(strings.TrimSpace(p.Message)) {
			text.WriteString("    " + terminal.Keep(strings.TrimSuffix(line, "\n")) + "\n")
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func writeNames(out io.Writer, views []local.PodView) error {
	for _, view := range views {
		if _, err := fmt.Fprintln(out, "pod/"+terminal.Line(view.Pod.Name)); err != nil {
			return err
		}
	}
	return nil
}

// wholePod is a pod that says that it is one.
func wholePod(p *v1.Pod) *v1.Pod {
	whole := *p
	whole.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	return &whole
}

// list is `v1 List`, as kubectl prints it.
type list struct {
	metav1.TypeMeta `json:",inline"`
	Items           []*v1.Pod       `json:"items"`
	Metadata        metav1.ListMeta `json:"metadata"`
}

func listOf(views []local.PodView) list {
	l := list{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []*v1.Pod{}}
	for _, view := range views {
		l.Items = append(l.Items, wholePod(view.Pod))
	}
	return l
}
