package agent_test

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var (
	everyPoint = flag.Bool("killpoints", false, "kill the agent at every point there is, not only at the first of each kind")
	seedFlag   = flag.Uint64("seed", 0, "only this seed, for the kills at random")
	killsFlag  = flag.Int("kills", 12, "how many kills at random there are")
)

// TestKillPoints kills the agent before, in and after each kind of effect in each
// part of pods' lives, and starts it anew: nothing is doubled and nothing lost.
func TestKillPoints(t *testing.T) {
	stories := []story{longLife, shortLife}
	cases := make(chan killCase)
	hits := hitList{}
	var wg sync.WaitGroup
	for range 6 { // mostly they wait
		wg.Go(func() {
			for c := range cases {
				t.Run(c.name, func(t *testing.T) { hits.add(c.run(t)) })
			}
		})
	}
	for _, s := range stories {
		points := s.survey(t)
		if t.Failed() {
			break
		}
		for _, c := range s.cases(points) {
			cases <- c
		}
	}
	close(cases)
	wg.Wait()
	if !t.Failed() {
		hits.check(t)
	}
}

// killCase is one world in which the agent is killed at most once in each phase.
type killCase struct {
	name  string
	story story
	// points are the phases' points; empty for a phase without a kill.
	points []string
	// asleep has no agent alive when a phase begins.
	asleep bool
	// orphaned has the manifest removed while the agent is dead.
	orphaned bool
}

func (c killCase) run(t *testing.T) []string {
	w := newWorld(t)
	life := newLife(w)
	w.start()
	for i, phase := range c.story {
		point := c.points[i]
		w.arm(point)
		w.tell("=== %s, to be killed at %q", phase.name, point)
		if c.asleep {
			w.kill("asleep")
		}
		phase.begin(life)
		if c.orphaned && point != "" {
			if !w.awaitDeath() {
				continue
			}
			w.tell("=== the manifest is removed")
			w.unwant("a")
			w.reach("nothing is left of it", life.gone)
			return w.deaths
		}
		w.reach(phase.name, func() string { return phase.goal(life) })
	}
	return w.deaths
}

// survey lets a story happen without a kill, and tells which points were passed in
// each phase, each as often as it was.
func (s story) survey(t *testing.T) (points [][]string) {
	t.Run("survey", func(t *testing.T) {
		w := newWorld(t)
		life := newLife(w)
		w.start()
		for _, phase := range s {
			w.arm("")
			w.tell("=== %s", phase.name)
			phase.begin(life)
			w.reach(phase.name, func() string { return phase.goal(life) })
			points = append(points, w.allPassed())
		}
	})
	return points
}

// cases distribute the points over worlds: the first has the first point of each
// phase, and so on. One has no agent while a phase begins. Then each point of the
// first phase once more, after which the pod isn't wanted any more.
func (s story) cases(passed [][]string) (cases []killCase) {
	points := make([][]string, len(s))
	most := 0
	for i := range s {
		if s[i].spared && !*everyPoint {
			continue
		}
		points[i] = choose(passed[i])
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
		cases = append(cases, killCase{name: "orphaned: " + point, story: s, points: append([]string{point}, make([]string, len(s)-1)...), orphaned: true})
	}
	return cases
}

// choose picks what is killed at: the first passing of each kind of point, or every
// passing of every point. An effect is held as well: what doesn't wait for it happens without it.
// Of the records for the next agent each one is held, as each is about something else.
func choose(passed []string) (points []string) {
	count, first := map[string]int{}, map[string]bool{}
	for _, p := range passed {
		count[p]++
		kind, n := kindOf(p), "#"+strconv.Itoa(count[p])
		if *everyPoint || !first[kind] && !strings.HasPrefix(p, "sent ") { // before the effect is about the same
			points = append(points, p+n)
		}
		if strings.HasPrefix(p, "before ") && (!first[kind] || *everyPoint || kind == "before "+string(pod.Keep)) {
			points = append(points, "held "+p+n)
		}
		first[kind] = true
	}
	return points
}

var anyContainer = regexp.MustCompile(`setup|side|main|[0-9]+`)

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

// arm has the agent killed when it passes "POINT#N", and forgets what it has passed.
func (w *world) arm(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed, w.lethal = nil, nil
	if target == "" {
		return
	}
	at := strings.LastIndex(target, "#")
	left, err := strconv.Atoi(target[at+1:])
	if err != nil {
		w.t.Fatal(err)
	}
	w.lethal = func(point string) bool {
		if point == target[:at] {
			left--
		}
		if left > 0 {
			return false
		}
		w.lethal = nil
		return true
	}
}

// reach has an agent live on, however often it is killed, until the goal is
// reached, and looks whether a law was broken.
func (w *world) reach(what string, problem func() string) {
	w.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	quiet := 0
	for {
		w.live()
		if faults := w.book.problems(); len(faults) > 0 {
			w.t.Fatalf("%s: %s", what, strings.Join(faults, "\n"))
		}
		p := problem()
		if quiet++; p != "" {
			quiet = 0
		}
		// A kill may be due a moment after the goal is reached.
		if quiet > 20 || quiet > 0 && w.disarmed() {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: still not so: %s", what, p)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// live starts an agent if the last one was killed.
func (w *world) live() {
	w.t.Helper()
	w.mu.Lock()
	broken, dead := w.broken, w.agent == nil
	w.mu.Unlock()
	if broken != "" {
		w.t.Fatal(broken)
	}
	if dead {
		w.start()
	}
}

// disarmed reports whether no kill is due.
func (w *world) disarmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lethal == nil
}

// awaitDeath waits for the agent to be killed; false if it isn't within two seconds.
func (w *world) awaitDeath() bool {
	for range 200 {
		if w.pid() == 0 {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// allPassed are the points passed since arm.
func (w *world) allPassed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.passed)
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

// check finds kinds of effects that no agent was killed before and after.
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
		"disk made root/checkpoints/desired/.file.json.tmp", "disk made root/checkpoints/desired/file.json",
		"disk made root/checkpoints/pods/UID/.kept.json.tmp", "disk made root/checkpoints/pods/UID/kept.json"} {
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

// TestKillPointsAtRandom kills the agent again and again, at points and between them.
func TestKillPointsAtRandom(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	var wg sync.WaitGroup
	for _, seed := range seeds {
		wg.Go(func() {
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { randomKills(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
	wg.Wait()
}

func randomKills(t *testing.T, rnd *rand.Rand) {
	w := newWorld(t)
	life := newLife(w)
	w.start()
	plan := longLife
	if rnd.IntN(3) == 0 {
		plan = shortLife
	}
	each := *killsFlag/len(plan) + 1
	for _, phase := range plan {
		w.tell("=== %s", phase.name)
		end := w.killAtRandom(rnd, each)
		phase.begin(life)
		w.reach(phase.name, func() string { return phase.goal(life) })
		end()
	}
}

// killAtRandom kills the agent up to n times: at one of the next points, or after
// some time.
func (w *world) killAtRandom(rnd *rand.Rand, n int) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left, begun := rnd.IntN(40), w.agent
	w.lethal = func(string) bool {
		if n == 0 {
			return false
		}
		if w.agent != begun {
			begun, left = w.agent, rnd.IntN(60)
		}
		if left--; left < 0 {
			n--
			return true
		}
		return false
	}
	var timer *time.Timer
	if rnd.IntN(2) == 0 {
		timer = time.AfterFunc(time.Duration(rnd.IntN(300))*time.Millisecond, func() { w.kill("at some time") })
	}
	return func() {
		if timer != nil {
			timer.Stop()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lethal = nil
	}
}
