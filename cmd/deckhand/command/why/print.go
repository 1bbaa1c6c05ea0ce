package why

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deckhand-node/deckhand/cmd/deckhand/command/show"
	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// lastLines is how many lines of a crashed container's log are printed. maxLast is the maximum size of these lines in
// bytes.
const (
	lastLines = 5
	maxLast   = 4 << 10
)

// previousLog is the command for the log of the previous instance.
const previousLog = "logs --previous"

// lastEvents is how many events of a pod are printed.
const lastEvents = 5

// Crashes returns requests for the logs of a pod's containers that ended with an error and don't run.
func Crashes(e *local.Explanation) []local.LogRequest {
	var list []local.LogRequest
	s := &e.Pod.Status
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		log, end := logOf(&c), c.State.Terminated
		if log == "" || c.State.Running != nil || end != nil && end.ExitCode == 0 {
			continue
		}
		r := local.LogRequest{Namespace: e.Pod.Namespace, Pod: e.Pod.Name, Container: c.Name,
			Previous: log == previousLog}
		r.Tail, r.LimitBytes = lastLines, maxLast
		list = append(list, r)
	}
	return list
}

// Print prints the explanation of a pod. The output is text, or JSON or YAML if the parameter as requests that format.
// last has the last lines of logs, by container name; the text includes them. Print reports whether the pod is fine.
func Print(out io.Writer, e *local.Explanation, last map[string]string, as string,
	now time.Time) (fine bool, err error) {
	v := Of(e)
	if done, err := show.As(out, as, struct {
		metav1.TypeMeta `json:",inline"`
		Summary         `json:",inline"`
		*local.Explanation
	}{show.Kind("Explanation"), v, e}); done {
		return v.Fine, err
	}
	t := &printer{now: now}
	t.line("%s: %s", e.Pod.Name, v.text(now))
	t.eviction(e)
	for i := range e.Waits {
		t.wait(&e.Waits[i], e)
	}
	for i := range e.Successor {
		t.line("\nA newer pod of this name is to follow: %s", e.Successor[i].Named())
	}
	if e.Runtime != "" {
		t.line("\nThe runtime isn't ready: %s", e.Runtime)
	}
	t.manifest(e)
	t.containers(e.Pod)
	for _, container := range slices.Sorted(maps.Keys(last)) {
		t.line("\nLast lines of container %s:", container)
		t.block(last[container])
	}
	t.probes(e.Failures)
	t.events(e.Events)
	t.more(e)
	_, err = io.WriteString(out, t.text.String())
	return v.Fine, err
}

// printer collects the text.
type printer struct {
	text strings.Builder
	now  time.Time
}

// line adds a line; its arguments can't add line breaks.
func (t *printer) line(form string, args ...any) {
	for i := range args {
		if s, ok := args[i].(string); ok {
			args[i] = terminal.Keep(s)
		}
	}
	fmt.Fprintf(&t.text, form+"\n", args...)
}

// eviction prints the place of a pod that the node may evict, and what to do about one that it has evicted.
func (t *printer) eviction(e *local.Explanation) {
	if r := e.Eviction; r != nil {
		t.line("\nIt would be ended %s of %d for %s (%s): %s", ordinal(r.Place), r.Of, string(r.Resource), r.Signal,
			usage(r))
	}
	rejected := slices.ContainsFunc(e.Waits, func(w local.Wait) bool { return w.Code == pod.WaitRejected })
	s := &e.Pod.Status
	if s.Phase != v1.PodFailed || pod.Reason(s.Reason) != pod.ReasonEvicted || rejected {
		return
	}
	t.line("\nThe node ended it: %s", s.Message) // the first line has only a part of the message
	switch {
	case e.Source == pod.SourceAPI:
		t.line("  next:    %s", staysFailedInCluster)
	case e.Source == pod.SourceRun:
		t.line("  next:    nothing: end its `deckhand run`, and run it again")
		return
	case podstatus.Resumes(e.Pod, e.Source):
		t.line("  next:    it is restarted once the node has enough again (evictionPressureTransitionPeriod)")
	default:
		t.line("  next:    nothing: it stays failed until it is restarted or its manifest is changed")
	}
	t.line("  you can: %s", explain.Advice(&pod.Wait{Code: pod.WaitRejected, Reason: pod.ReasonEvicted}, e.Pod))
}

// usage compares a pod's use of a resource with its request.
func usage(r *local.EvictionRank) string {
	switch {
	case r.Request == nil:
		return "it uses " + show.Quantity(r.Resource, r.Used)
	case r.Used >= *r.Request:
		return show.Quantity(r.Resource, r.Used-*r.Request) + " over its request"
	default:
		return show.Quantity(r.Resource, *r.Request-r.Used) + " below its request"
	}
}

func ordinal(n int) string {
	if n/10%10 != 1 {
		switch n % 10 {
		case 1:
			return fmt.Sprintf("%dst", n)
		case 2:
			return fmt.Sprintf("%dnd", n)
		case 3:
			return fmt.Sprintf("%drd", n)
		}
	}
	return fmt.Sprintf("%dth", n)
}

// staysFailedInCluster is the next step for a pod of an API server that has failed.
const staysFailedInCluster = "nothing: it stays failed; its Deployment, Job or the like makes another pod, if it has " +
	"one"

// wait explains one reason why the pod waits. While the pod is being stopped, there is no next attempt.
func (t *printer) wait(w *local.Wait, e *local.Explanation) {
	if w.Container != "" {
		t.line("\nContainer %s: %s", w.Container, w.Text)
	} else {
		t.line("\nThe pod: %s", w.Text)
	}
	for _, cause := range w.Because {
		t.line("  because: %s", cause)
	}
	if !w.Since.IsZero() {
		t.line("  since:   %s ago, at %s", span(t.now.Sub(w.Since)), t.clock(w.Since))
	}
	next := "it is tried again"
	if e.Stopping != "" || w.Code == pod.WaitPodStop {
		next = "containers that still run are killed"
	}
	switch {
	case w.Code == pod.WaitRejected && e.Source == pod.SourceAPI:
		t.line("  next:    %s", staysFailedInCluster)
	case w.Code == pod.WaitRejected:
		t.line("  next:    nothing: it stays failed until its manifest is changed")
	case w.Next.IsZero() && (w.Code == pod.WaitProbe || w.Code == pod.WaitProbeFailed):
		t.line("  next:    it goes on once the probe succeeds")
	case w.Next.IsZero():
		t.line("  next:    it goes on when something changes")
	case w.Next.After(t.now):
		t.line("  next:    %s in %s, at %s", next, span(w.Next.Sub(t.now)), t.clock(w.Next))
	default:
		t.line("  next:    %s now", next)
	}
	if w.Advice != "" {
		t.line("  you can: %s", w.Advice)
	}
}

// manifest prints the problems of the pod's manifest.
func (t *printer) manifest(e *local.Explanation) {
	if e.Stale != "" {
		t.line("\nThe newest version of its manifest, %s, can't be used, and an older one is kept:", e.Origin)
		t.block(e.Stale)
	}
	t.problems(e.Problems, e.Stale)
}

// problems prints problems of manifests, except those with a message in the text printed.
func (t *printer) problems(list []pod.Problem, printed string) {
	for i := range list {
		p := &list[i]
		if message := strings.TrimSpace(p.Message); printed != "" &&
			(strings.Contains(printed, message) || strings.Contains(message, printed)) {
			continue
		}
		t.line("\n%s:", troubled(p, t.now))
		t.block(p.Message)
		if p.Advice != "" {
			t.line("  you can: %s", p.Advice)
		}
	}
}

// troubled returns a text with the object of a problem, and for how long the problem has existed. The text says "has
// been wrong" only for manifests, which users can correct.
func troubled(p *pod.Problem, now time.Time) string {
	what := p.Origin
	if p.Pod != "" {
		what += " (pod " + p.Pod + ")"
	}
	if p.General || p.Source == pod.SourceAPI {
		what += ","
	} else {
		what += " has been wrong"
	}
	return strings.TrimSuffix(what+lasting(p.Since, now), ",")
}

// block adds a text of several lines.
func (t *printer) block(text string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		t.text.WriteString("  " + terminal.Keep(strings.TrimRight(line, "\r\n")) + "\n")
	}
}

func (t *printer) containers(p *v1.Pod) {
	var rows [][]string
	add := func(list []v1.ContainerStatus, kind string) {
		for i := range list {
			s := &list[i]
			rows = append(rows, []string{"  " + kind + terminal.Line(s.Name), terminal.Line(podstatus.ContainerWord(s)),
				t.container(s)})
		}
	}
	add(p.Status.InitContainerStatuses, "init:")
	add(p.Status.ContainerStatuses, "")
	add(p.Status.EphemeralContainerStatuses, "debug:")
	if len(rows) == 0 {
		return
	}
	t.text.WriteString("\nContainers:\n")
	for _, line := range new(show.Table).Lines(rows...) {
		t.text.WriteString(line + "\n")
	}
}

// container describes a container's state, restarts and last termination.
func (t *printer) container(s *v1.ContainerStatus) string {
	var parts []string
	switch {
	case s.State.Running != nil:
		state := "not ready"
		if s.Ready {
			state = "ready"
		}
		parts = append(parts, state+", running"+lasting(s.State.Running.StartedAt.Time, t.now))
	case s.State.Terminated != nil:
		parts = append(parts, "ended"+ago(s.State.Terminated.FinishedAt.Time, t.now)+" with "+exit(s.State.Terminated))
	case s.State.Waiting != nil && s.State.Waiting.Message != "":
		parts = append(parts, show.CutMiddle(terminal.Line(s.State.Waiting.Message), maxCause))
	}
	if s.RestartCount > 0 {
		parts = append(parts, fmt.Sprintf("restarts: %d", s.RestartCount))
	}
	if last := s.LastTerminationState.Terminated; last != nil {
		parts = append(parts, "last ended"+ago(last.FinishedAt.Time, t.now)+" with "+exit(last))
	}
	return strings.Join(parts, "; ")
}

// probes lists the failing probes.
func (t *printer) probes(list []pod.ProbeFailures) {
	if len(list) > 0 {
		t.text.WriteString("\nProbes that fail:\n")
	}
	for i := range list {
		p, times := &list[i], "once,"
		if p.Count > 1 {
			times = fmt.Sprintf("%d times in a row%s, last", p.Count, lasting(p.Since, t.now))
		}
		t.line("  %s of container %s: %s%s%s", string(p.Kind), p.Container, times, ago(p.Last, t.now),
			because(p.Message))
	}
}

func (t *printer) events(list []local.Event) {
	list = list[max(0, len(list)-lastEvents):]
	if len(list) == 0 {
		return
	}
	rows := make([][]string, len(list))
	for i := range list {
		e := &list[i]
		message := terminal.Line(e.Message)
		if e.Count > 1 {
			message += fmt.Sprintf(" (%d times)", e.Count)
		}
		rows[i] = []string{"  " + span(t.now.Sub(e.Time)) + " ago", terminal.Line(e.Type), terminal.Line(e.Reason),
			message}
	}
	t.text.WriteString("\nLately:\n")
	for _, line := range new(show.Table).Lines(rows...) {
		t.text.WriteString(line + "\n")
	}
}

// more lists commands that show more.
func (t *printer) more(e *local.Explanation) {
	p := e.Pod
	name := p.Namespace + "/" + p.Name
	see := []string{"deckhand journal " + name, "deckhand events --for " + name}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if log := logOf(&s); log != "" {
			see = slices.Insert(see, 0, fmt.Sprintf("deckhand %s %s %s", log, name, s.Name))
			break
		}
	}
	t.text.WriteString("\nMore:\n")
	for _, command := range see {
		t.line("  %s", command)
	}
}

// logOf returns the command for the log that best explains a container's state; empty if there is none.
func logOf(s *v1.ContainerStatus) string {
	never := func(t *v1.ContainerStateTerminated) bool { return t.Reason == string(pod.ReasonStartError) }
	end, last := s.State.Terminated, s.LastTerminationState.Terminated
	switch {
	case end != nil && (end.ExitCode == 0 && s.Ready || never(end)): // an init container that has completed
		return ""
	case last != nil && never(last) && s.State.Running == nil: // not started yet, so there is no log, either
		return ""
	case last != nil && !never(last), last == nil && s.RestartCount > 0:
		return previousLog
	case end != nil, s.State.Running != nil && !s.Ready:
		return "logs"
	}
	return ""
}

// clock formats the time of day, with the date unless that is today.
func (t *printer) clock(at time.Time) string {
	at = at.In(t.now.Location())
	if at.YearDay() == t.now.YearDay() && at.Year() == t.now.Year() {
		return at.Format(time.TimeOnly)
	}
	return at.Format(time.DateTime)
}

// span formats a duration as kubectl does; at least 0.
func span(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }
