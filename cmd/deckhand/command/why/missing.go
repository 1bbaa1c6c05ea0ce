package why

import (
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Missing prints possible reasons why there is no pod of this name.
func Missing(out io.Writer, s *local.Snapshot, events []local.Event, namespace, name string, now time.Time) error {
	t := &printer{now: now}
	bare := name[strings.LastIndex(name, "/")+1:]
	t.line("There is no pod %s%s.", name, in(namespace))
	if near := show.Like(*s, bare); len(near) > 0 {
		t.line("\nPods with a name like it: %s", strings.Join(near, ", "))
	}
	if s.Agent.Cluster {
		t.line("\nIt may be one of another node: `kubectl get pods -A -o wide` says where pods run.")
	}
	var about, away, others []pod.Problem
	for _, p := range s.Problems {
		switch {
		case p.Source == "": // the problem is the node's, not a manifest's
		case mentions(&p, bare, s.Node):
			about = append(about, p)
		case p.Source == pod.SourceAPI:
			if p.Pod == "" {
				away = append(away, p)
			}
		case !slices.ContainsFunc(s.Pods, func(v local.PodView) bool { return mentions(&p, v.Pod.Name, s.Node) }):
			others = append(others, p)
		}
	}
	t.problems(about, "")
	t.problems(away, "")
	if len(about) == 0 && len(others) > 0 {
		possessive := "Its"
		if s.Agent.Cluster {
			possessive = "If it is a static pod, its"
		}
		t.line("\n%s manifest may be one of those that can't be used:", possessive)
		for i := range others {
			t.line("  %s", others[i].Origin)
		}
	}
	t.events(slices.DeleteFunc(slices.Clone(events), func(e local.Event) bool {
		own, ok := e.PodName()
		return !ok || own != bare && own != bare+"-"+s.Node || namespace != "" && e.Namespace != namespace
	}))
	if !s.Agent.Synced {
		t.line("\nThe agent is still reading what is to run: try again in a moment.")
	}
	_, err := io.WriteString(out, t.text.String())
	return err
}

// mentions reports whether a problem is about a manifest of this pod. name may end with the node's name.
func mentions(p *pod.Problem, name, node string) bool {
	own := p.Pod[strings.LastIndex(p.Pod, "/")+1:]
	if own != "" {
		return own == name || own+"-"+node == name
	}
	// The file's name may match, such as that of "/m/web.yaml, document 2".
	file, _, _ := strings.Cut(path.Base(p.Origin), ",")
	file = strings.TrimSuffix(file, path.Ext(file))
	return file == name || file+"-"+node == name
}
