package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Container is a container of a pod in the output for programs.
type Container struct {
	metav1.TypeMeta `json:",inline"`
	Namespace       string `json:"namespace"`
	Pod             string `json:"pod"`
	// Kind is init, main or debug.
	Kind string `json:"kind"`
	// PID is the ID of the container's first process on this machine; 0 if none runs.
	PID                int `json:"pid,omitempty"`
	v1.ContainerStatus `json:",inline"`
}

// ContainersOf returns the containers of pods. firstProcess returns the ID of a container's first process.
func ContainersOf(views []local.PodView, firstProcess func(id string) int) []Container {
	list := []Container{}
	for i := range views {
		p := views[i].Pod
		add := func(kind string, statuses []v1.ContainerStatus) {
			for _, s := range statuses {
				c := Container{TypeMeta: Kind("Container"), Namespace: p.Namespace, Pod: p.Name, Kind: kind,
					ContainerStatus: s}
				if s.State.Running != nil {
					c.PID = firstProcess(bareID(s.ContainerID))
				}
				list = append(list, c)
			}
		}
		add("init", p.Status.InitContainerStatuses)
		add("main", p.Status.ContainerStatuses)
		add("debug", p.Status.EphemeralContainerStatuses)
	}
	return list
}

// bareID returns a container's ID without the runtime's name.
func bareID(id string) string {
	_, bare, _ := strings.Cut(id, "://")
	return bare
}

// ContainerRows returns the rows of a table of containers, the heading first.
func ContainerRows(list []Container, full bool, now time.Time) [][]string {
	rows := [][]string{{"NAMESPACE", "POD", "CONTAINER", "ID", "PID", "STATUS", "RESTARTS", "AGE", "IMAGE"}}
	for i := range list {
		c := &list[i]
		name, id, pid, age := c.Name, bareID(c.ContainerID), "", ""
		if c.Kind != "main" {
			name = fmt.Sprintf("%s (%s)", name, c.Kind)
		}
		if !full {
			id = id[:min(len(id), 13)] // as in crictl
		}
		if c.PID != 0 {
			pid = strconv.Itoa(c.PID)
		}
		if c.State.Running != nil {
			age = podstatus.Since(c.State.Running.StartedAt.Time, now)
		}
		rows = append(rows, []string{c.Namespace, c.Pod, name, orNone(id), pid,
			podstatus.ContainerWord(&c.ContainerStatus), podstatus.ContainerRestarts(&c.ContainerStatus, now), age,
			c.Image})
	}
	return rows
}
