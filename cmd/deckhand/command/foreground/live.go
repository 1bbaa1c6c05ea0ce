package foreground

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// Control sequences of ECMA-48 for redrawing in place. A frame is written at once, each line over its previous
// content, so that nothing flickers.
const (
	upLines   = "\x1b[%dF"
	eraseLine = "\x1b[K"
	eraseDown = "\x1b[J"
	green     = "\x1b[32m"
	yellow    = "\x1b[33m"
	red       = "\x1b[31m"
	plain     = "\x1b[0m"
)

// live draws a table in place.
type live struct {
	w        io.Writer
	now      func() time.Time
	begun    time.Time
	terminal *Terminal
	table    show.Table
	// drawn are the widths of the lines on the screen.
	drawn []int
}

// line is a line of the frame with its color, a control sequence; empty for the default color.
type line struct{ text, color string }

func (l *live) show(s local.Snapshot) error {
	width, height := l.terminal.Size()
	lines := l.frame(s, width, max(1, height-1))
	var out strings.Builder
	if rows := rowsOf(l.drawn, width); rows > 0 {
		fmt.Fprintf(&out, upLines, rows)
	}
	l.drawn = l.drawn[:0]
	for _, line := range lines {
		if line.color != "" && l.terminal.Color {
			out.WriteString(line.color + line.text + plain)
		} else {
			out.WriteString(line.text)
		}
		out.WriteString(eraseLine + "\n")
		l.drawn = append(l.drawn, utf8.RuneCountInString(line.text))
	}
	out.WriteString(eraseDown)
	_, err := io.WriteString(l.w, out.String())
	return err
}

// rowsOf returns how many rows of the screen the lines take: a line takes several rows if the terminal has become
// narrower and wraps the line.
func rowsOf(widths []int, width int) int {
	rows := 0
	for _, w := range widths {
		rows += max(1, (w+width-1)/width)
	}
	return rows
}

// frame returns the lines to show in width columns and height rows.
func (l *live) frame(s local.Snapshot, width, height int) []line {
	lines := []line{{text: show.CutLine(l.summary(s), width)}}
	var problems []line
	for _, problem := range s.Problems {
		first, _, _ := strings.Cut(problem.Message, "\n")
		problems = append(problems,
			line{show.CutLine(terminal.Keep("problem in "+problem.Origin+": "+first), width), red})
	}
	limit := max(0, height-len(lines)-min(len(problems), height/3))
	lines = append(lines, l.pods(s.Pods, width, limit)...)
	return append(lines, problems[:min(len(problems), height-len(lines))]...)
}

func (l *live) summary(s local.Snapshot) string {
	if len(s.Pods) == 0 && !s.Agent.Synced {
		return "Reading the manifests..."
	}
	done := 0
	for i := range s.Pods {
		if s.Pods[i].Done() {
			done++
		}
	}
	return fmt.Sprintf("%d of %d pods ready after %s", done, len(s.Pods), l.now().Sub(l.begun).Truncate(time.Second))
}

// pods returns the lines of the table, at most limit. If there are more pods, ready pods are omitted first.
func (l *live) pods(views []local.PodView, width, limit int) []line {
	if len(views) == 0 || limit < 2 {
		return nil
	}
	hidden := 0
	if len(views)+1 > limit {
		hidden = len(views) + 2 - limit
		views = slices.Clone(views)
		slices.SortStableFunc(views, func(a, b local.PodView) int { return cmp.Compare(rank(&a), rank(&b)) })
		views = views[:len(views)-hidden]
	}
	now := l.now()
	rows := [][]string{{"NAME", "READY", "STATUS", "RESTARTS", "AGE", "REASON"}}
	colors := []string{""}
	for i := range views {
		p := views[i].Pod
		rows = append(rows, []string{p.Name, podstatus.Containers(p), views[i].Word(), podstatus.Restarts(p, now),
			podstatus.Age(p, now), views[i].Reason()})
		colors = append(colors, []string{red, yellow, green}[rank(&views[i])])
	}
	var lines []line
	for i, text := range l.table.Lines(rows...) {
		lines = append(lines, line{show.CutLine(text, width), colors[i]})
	}
	if hidden > 0 {
		lines = append(lines, line{text: show.CutLine(fmt.Sprintf("... and %d more", hidden), width)})
	}
	return lines
}

// rank returns the sort key of a pod: pods with problems come first, ready pods last.
func rank(v *local.PodView) int {
	switch {
	case v.Done():
		return 2
	case v.Over(), podstatus.RestartCount(v.Pod) > 0:
		return 0
	}
	return 1
}
