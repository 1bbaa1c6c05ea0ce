package agent_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// cases distribute the points over worlds: the first has the first point of each
// phase, and so on. One has no agent while a phase begins. Then each point of the
// first phase once more, after which the pod isn't wanted any more.
func (s story) cases(passed [][]string) (cases []killCase) {
	points, once := make([][]string, len(s)), map[string]bool{}
	most := 0
	for i := range s {
		if s[i].skipped && !*everyPoint {
			continue
		}
		points[i] = choose(passed[i], once)
		most = max(most, len(points[i]))
	}
	for n := range most {
		c := killCase{story: s, points: make([]string, len(s))}
		var names []string
		for i := range s {
			if n < len(points[i]) {
				c.points[i] = points[i][n]
				names = append(names, s[i].name+": "+c.points[i])
			}
		}
		c.name = strings.Join(names, ", ")
		cases = append(cases, c)
	}
	cases = append(cases, killCase{name: "asleep", story: s, points: make([]string, len(s)), asleep: true})
	for _, point := range points[0] {
		if strings.HasPrefix(point, "before ") && !*everyPoint {
			continue // about the same as after what came before it
		}
		cases = append(cases, killCase{name: "orphaned: " + point, story: s, points: append([]string{point}, make([]string, len(s)-1)...), orphaned: true})
	}
	return cases
}

// choose picks what is killed at: the first passing of each kind of point that
// matters, or every passing of every point. A write of the record for the next agent
// is held as well, each with other contents: what should wait for it mustn't happen.
// Just before an effect, and in the midst of it, the agent is killed in one phase
// alone: in the others, that is about the same as after an effect.
func choose(passed []string, once map[string]bool) (points []string) {
	count, known := map[string]int{}, map[string]bool{}
	for _, p := range passed {
		count[p]++
		this, kind := p+"#"+strconv.Itoa(count[p]), kindOf(p)
		holds := strings.HasPrefix(p, "before "+string(pod.SaveCheckpoint))
		switch {
		case *everyPoint:
			points = append(points, this)
			if strings.HasPrefix(p, "before ") {
				points = append(points, "held "+this)
			}
		case holds && count[p] == 1:
			points = append(points, "held "+this)
			fallthrough
		case matters.MatchString(p):
			if !known[kind] && !once[kind] {
				points = append(points, this)
			}
		}
		known[kind] = true
		once[kind] = once[kind] || !strings.HasPrefix(p, "after ")
	}
	return points
}

// matters leaves out, of what is like its neighbours: calls not yet begun, calls
// that only ask, and files that have nothing to do with pods.
var matters = regexp.MustCompile(`^(before|after) |^answered (Run|Stop|Remove|Pull|Create|Start|Update|ExecSync p)|^disk .*(checkpoints/|root/pods/UID$|logs/default_a-n_UID$)`)

var anyContainer = regexp.MustCompile(`setup|side|main|debugger|[0-9]+`)

// kindOf leaves what differs between containers and instances out of a point's name.
func kindOf(point string) string {
	f := strings.Fields(point)
	switch f[0] {
	case "before", "after":
		f = f[:2]
	case "held":
		f = f[:3]
	case "disk":
		f[2] = anyContainer.ReplaceAllString(f[2], "X")
	}
	return strings.Join(f, " ")
}

// hitList counts at which points agents were killed.
type hitList struct {
	mu     sync.Mutex
	points map[string]int
}

func (h *hitList) add(deaths []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.points == nil {
		h.points = map[string]int{}
	}
	for _, d := range deaths {
		h.points[kindOf(d)]++
	}
}

// check finds kinds of actions that no agent was killed before and after.
func (h *hitList) check(t *testing.T) {
	kinds, err := actionKinds()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range append(kinds, statusPoint) {
		for _, moment := range []string{"before ", "after "} {
			if h.points[moment+kind] == 0 {
				t.Errorf("no agent was killed just %s%s: have a pod here need that", moment, kind)
			}
		}
	}
	for _, p := range []string{"answered RunPodSandbox", "answered PullImage", "answered CreateContainer", "answered StartContainer", "answered StopContainer",
		"answered RemoveContainer", "answered UpdateContainerResources", "answered StopPodSandbox", "answered RemovePodSandbox",
		"answered ExecSync " + postStartHook, "answered ExecSync " + preStopHook,
		// Of the moment between writing and renaming a file the kernel reports too late, now
		// and then: it is hit in most runs, and not asked for here.
		"disk made root/checkpoints/desired/file.json", "disk made root/checkpoints/pods/UID/kept.json", "disk made root/checkpoints/volumes/bindings.json",
		"disk made root/checkpoints/added.json"} {
		if h.points[p] == 0 {
			t.Errorf("no agent was killed at %q", p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(h.points)) {
		t.Logf("%4d %s", h.points[p], p)
	}
}

// actionKinds lists the kinds of actions there are.
func actionKinds() (kinds []string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "pod", "action.go"), nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "ActionKind" {
			for _, value := range v.Values {
				if lit, ok := value.(*ast.BasicLit); ok {
					kinds = append(kinds, strings.Trim(lit.Value, `"`))
				}
			}
		}
		return true
	})
	if len(kinds) == 0 {
		err = errors.New("no kinds of actions found")
	}
	return kinds, err
}
