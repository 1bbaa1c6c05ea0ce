package show

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// rowMaker makes the rows of the pod table.
type rowMaker struct {
	Table
	now func() time.Time
	// namespaced means that all pods are in one namespace, so that the table needs no column for it.
	namespaced bool
	wide       bool
	// columns are labels with a column each; showLabels shows all labels in one column.
	columns    []string
	showLabels bool
}

func (r *rowMaker) header() []string {
	row := []string{"NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP"}
	if r.wide {
		row = append(row, "NODE", "PORTS", "IMAGES", "SOURCE", "ORIGIN")
	}
	for _, key := range r.columns {
		row = append(row, strings.ToUpper(key[strings.LastIndex(key, "/")+1:]))
	}
	if r.showLabels {
		row = append(row, "LABELS")
	}
	return r.row(append(row, "REASON"))
}

// labels returns the cells of a pod's labels, which come before the last column.
func (r *rowMaker) labels(p *v1.Pod) []string {
	var cells []string
	for _, key := range r.columns {
		cells = append(cells, p.Labels[key])
	}
	if r.showLabels {
		cells = append(cells, orNone(pairs(p.Labels)))
	}
	return cells
}

func (r *rowMaker) row(row []string) []string {
	if r.namespaced {
		return row[1:]
	}
	return row
}

// restartsColumn returns the index of RESTARTS; AGE follows.
func (r *rowMaker) restartsColumn() int {
	if r.namespaced {
		return 3
	}
	return 4
}

func (r *rowMaker) pod(view *local.PodView) []string {
	p, now := view.Pod, r.now()
	row := []string{p.Namespace, p.Name, podstatus.Containers(p), view.Word(),
		podstatus.Restarts(p, now), podstatus.Age(p, now), r.address(p)}
	if r.wide {
		row = append(row, orNone(p.Spec.NodeName), orNone(ports(p)), orNone(images(p)), orNone(string(view.Source)),
			orNone(view.Origin))
	}
	row = append(row, r.labels(p)...)
	return r.row(append(row, reason(view)))
}

// gone returns the last row of a pod that was removed.
func (r *rowMaker) gone(view *local.PodView) []string {
	row := r.pod(view)
	row[r.restartsColumn()-1] = "Removed"
	row[len(row)-1] = ""
	return row
}

// containers returns the rows below a pod's row.
func (r *rowMaker) containers(p *v1.Pod) [][]string {
	var rows [][]string
	add := func(statuses []v1.ContainerStatus, kind string) {
		for i := range statuses {
			rows = append(rows, r.container(p, &statuses[i], kind))
		}
	}
	add(p.Status.InitContainerStatuses, "init:")
	add(p.Status.ContainerStatuses, "")
	add(p.Status.EphemeralContainerStatuses, "debug:")
	return rows
}

func (r *rowMaker) container(p *v1.Pod, s *v1.ContainerStatus, kind string) []string {
	now := r.now()
	ready, age, why := "no", "", ""
	if s.Ready {
		ready = "yes"
	}
	switch {
	case s.State.Running != nil:
		age = podstatus.Since(s.State.Running.StartedAt.Time, now)
	case s.State.Terminated != nil:
		why = fmt.Sprintf("exit code %d", s.State.Terminated.ExitCode)
		if s.State.Terminated.Message != "" {
			why += ": " + s.State.Terminated.Message
		}
	case s.State.Waiting != nil:
		why = s.State.Waiting.Message
	}
	row := []string{p.Namespace, "  " + kind + s.Name, ready, podstatus.ContainerWord(s),
		podstatus.ContainerRestarts(s, now), age, ""}
	if r.wide {
		row = append(row, "", "", s.Image, "", "")
	}
	row = append(row, make([]string, len(r.labels(p)))...)
	return r.row(append(row, why))
}

// address returns the pod's IP, or all of its IPs in the wide table.
func (r *rowMaker) address(p *v1.Pod) string {
	if !r.wide || len(p.Status.PodIPs) == 0 {
		return orNone(p.Status.PodIP)
	}
	var ips []string
	for _, ip := range p.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return strings.Join(ips, ",")
}

// ports returns the ports of main containers and sidecars, as HOST->CONTAINER/PROTOCOL if there is a host port.
func ports(p *v1.Pod) string {
	var list []string
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		for _, port := range c.Ports {
			text := fmt.Sprintf("%d/%s", port.ContainerPort,
				strings.ToLower(string(cmp.Or(port.Protocol, v1.ProtocolTCP))))
			if port.HostPort != 0 {
				text = fmt.Sprintf("%d->%s", port.HostPort, text)
			}
			list = append(list, text)
		}
	}
	return strings.Join(list, ",")
}

// images returns the images of the main containers.
func images(p *v1.Pod) string {
	var list []string
	for i := range p.Spec.Containers {
		list = append(list, p.Spec.Containers[i].Image)
	}
	return strings.Join(slices.Compact(list), ",")
}

func reason(view *local.PodView) string {
	waits := view.Reason()
	if view.Stale == "" {
		return waits
	}
	if waits != "" {
		waits += "; "
	}
	return waits + "an older manifest is kept: " + view.Stale
}

func orNone(s string) string { return cmp.Or(s, "<none>") }
