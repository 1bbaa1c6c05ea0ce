package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// tell logs everything that helps to understand a failure.
func (n *Node) tell() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var b strings.Builder
	fmt.Fprintf(&b, "--- the agent's log, its end:\n%s\n", tail(n.Logged(), 120))
	for _, log := range []string{"deckhand.log", "containerd/containerd.log"} { // the first one is that of `deckhand down`
		if text, err := os.ReadFile(filepath.Join(n.RootDir, log)); err == nil {
			fmt.Fprintf(&b, "--- %s, its end:\n%s\n", log, tail(string(text), 40))
		}
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
		fmt.Fprintf(&b, "pod %s %s %s deleted=%v stale=%q reasons=%q\n", v.Pod.Name, v.Pod.UID, v.Pod.Status.Phase, v.Pod.DeletionTimestamp != nil, v.Stale, v.Waiting())
		for _, c := range append(v.Pod.Status.InitContainerStatuses, v.Pod.Status.ContainerStatuses...) {
			fmt.Fprintf(&b, "  %s restarts=%d ready=%v %s %+v\n", c.Name, c.RestartCount, c.Ready, c.ContainerID, c.State)
		}
		n.tellJournal(ctx, &b, v.Pod)
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

// tellJournal writes what was decided about a pod lately.
func (n *Node) tellJournal(ctx context.Context, w io.Writer, p *v1.Pod) {
	journal, err := n.client.Journal(ctx, p.Namespace, p.Name, false)
	if err != nil {
		fmt.Fprintln(w, "  its journal:", err)
		return
	}
	defer journal.Close()
	text, err := io.ReadAll(journal)
	if err != nil {
		fmt.Fprintln(w, "  its journal:", err)
	}
	fmt.Fprintf(w, "  its journal, the end:\n%s\n", tail(string(text), 60))
}

// tail is the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
