package foreground

import (
	"fmt"
	"io"
	"strings"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Plain writes a line for each change. It is not safe for concurrent use.
type Plain struct {
	w    io.Writer
	last map[string]string
	// changed is set if the last call of show wrote a line.
	changed bool
}

// NewPlain returns a Plain that writes to w.
func NewPlain(w io.Writer) *Plain { return &Plain{w: w} }

// Pods writes a line for each pod that has changed since the last call.
func (p *Plain) Pods(views []local.PodView) error { return p.show(local.Snapshot{Pods: views}) }

func (p *Plain) show(s local.Snapshot) error {
	now := make(map[string]string, len(s.Pods)+len(s.Problems))
	var lines []string
	add := func(key string, block ...string) {
		for i := range block {
			block[i] = terminal.Keep(block[i])
		}
		line := strings.Join(block, "\n  ")
		now[key] = line
		if p.last[key] != line {
			lines = append(lines, line)
		}
	}
	for i := range s.Pods {
		name := s.Pods[i].Pod.Namespace + "/" + s.Pods[i].Pod.Name
		add("pod "+name, name+": "+describe(&s.Pods[i]))
	}
	problems, more := show.FirstProblems(s.Problems)
	for _, problem := range problems {
		key := fmt.Sprintf("problem %s %s %s", problem.Origin, problem.Pod, problem.Message)
		add(key, strings.Split(fmt.Sprintf("problem in %s: %s", terminal.Line(problem.Origin), problem.Message),
			"\n")...)
	}
	if more != "" {
		add("more problems", more)
	}
	p.last, p.changed = now, len(lines) > 0
	if !p.changed {
		return nil
	}
	_, err := io.WriteString(p.w, strings.Join(lines, "\n")+"\n")
	return err
}

// describe describes a pod's state in one line.
func describe(v *local.PodView) string {
	text := fmt.Sprintf("%s, %s ready", v.Word(), podstatus.Containers(v.Pod))
	if v.Over() {
		text = v.Word()
	}
	switch n := podstatus.RestartCount(v.Pod); n {
	case 0:
	case 1:
		text += ", 1 restart"
	default:
		text += fmt.Sprintf(", %d restarts", n)
	}
	if waits := v.Reason(); waits != "" {
		text += " (" + waits + ")"
	}
	return text
}
