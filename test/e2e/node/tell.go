package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tell logs everything that helps to understand a failure.
func (n *Node) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "--- the agent's log, its end:\n%s\n", tail(n.Logged(), 120))
	if text, err := os.ReadFile(filepath.Join(n.RootDir, "containerd", "containerd.log")); err == nil {
		fmt.Fprintf(&b, "--- containerd's log, its end:\n%s\n", tail(string(text), 40))
	}
	fmt.Fprintln(&b, "--- events:")
	events, err := n.client.Events(ctx)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, e := range events[max(0, len(events)-60):] {
		fmt.Fprintf(&b, "%s %s %s %s (%d): %s\n", e.Time.Format(time.StampMilli), e.Type, e.Reason, e.Object, e.Count, e.Message)
	}
	fmt.Fprintln(&b, "--- what the agent says:")
	s, err := n.client.Snapshot(ctx)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "problem %s: %s\n", p.Origin, p.Message)
	}
	for _, v := range s.Pods {
		fmt.Fprintf(&b, "pod %s %s %s deleted=%v stale=%q reasons=%q\n", v.Pod.Name, v.Pod.UID, v.Pod.Status.Phase, v.Pod.DeletionTimestamp != nil, v.Stale, v.Reasons)
		for _, c := range v.Pod.Status.ContainerStatuses {
			fmt.Fprintf(&b, "  %s restarts=%d ready=%v %s %+v\n", c.Name, c.RestartCount, c.Ready, c.ContainerID, c.State)
		}
	}
	fmt.Fprintln(&b, "--- what the runtime says:")
	list, err := n.containers(ctx)
	if err != nil {
		fmt.Fprintln(&b, err)
	}
	for _, c := range list {
		fmt.Fprintf(&b, "%+v\n", c)
	}
	n.t.Log(b.String())
}

// tail is the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
