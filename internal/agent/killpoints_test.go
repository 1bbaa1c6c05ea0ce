package agent_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
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

// TestKillPoints kills the agent before, in and after each kind of action in each
// part of pods' lives, and starts it anew: nothing is doubled and nothing lost.
func TestKillPoints(t *testing.T) {
	stories := []story{longLife, shortLife, objectLife, debuggedLife}
	cases := make(chan killCase)
	hits := hitList{}
	var wg sync.WaitGroup
	for range 8 { // mostly they wait
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
		if c.skips(i) {
			continue
		}
		w.arm(point)
		w.logf("=== %s, to be killed at %q", phase.name, point)
		if c.asleep {
			w.kill("asleep")
		}
		phase.begin(life)
		if c.orphaned && point != "" {
			if !w.awaitDeath() {
				continue
			}
			w.logf("=== the manifest is removed")
			w.unwant("a")
			w.reach("nothing is left of it", life.gone)
			return w.deaths
		}
		w.reach(phase.name, func() string { return phase.goal(life) })
	}
	return w.deaths
}

// skips lists the phases that nothing would come of: no agent is killed in them, nor
// in the next, which may need what came of this one.
func (c killCase) skips(i int) bool {
	last := len(c.story) - 1
	return i > 0 && i < last && !c.asleep && c.points[i] == "" && (c.points[i+1] == "" || i+1 == last)
}

// survey lets a story happen without a kill, and returns which points were passed in
// each phase, each as often as it was.
func (s story) survey(t *testing.T) (points [][]string) {
	t.Run("survey", func(t *testing.T) {
		w := newWorld(t)
		life := newLife(w)
		w.start()
		for _, phase := range s {
			w.arm("")
			w.logf("=== %s", phase.name)
			phase.begin(life)
			w.reach(phase.name, func() string { return phase.goal(life) })
			points = append(points, w.allPassed())
		}
	})
	return points
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
// reached, and looks whether a rule was broken.
func (w *world) reach(what string, problem func() string) {
	w.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	quiet := 0
	for {
		if w.live() {
			deadline = time.Now().Add(30 * time.Second)
		}
		if faults := w.callLog.problems(); len(faults) > 0 {
			w.t.Fatalf("%s: %s", what, strings.Join(faults, "\n"))
		}
		p := problem()
		if quiet++; p != "" {
			quiet = 0
		}
		// A kill may be due a moment after the goal is reached.
		if quiet > 30 || quiet > 0 && w.disarmed() {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: still not so: %s", what, p)
		}
		time.Sleep(15 * time.Millisecond)
	}
}

// live starts an agent if the last one was killed, and reports whether it was.
func (w *world) live() bool {
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
	return dead
}

// disarmed reports whether no kill is due.
func (w *world) disarmed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lethal == nil && !w.held
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

// TestJournalOfGonePodGoes with the pod, though the agent dies between the two.
func TestJournalOfGonePodGoes(t *testing.T) {
	w := newWorld(t)
	life := newLife(w)
	w.start()
	longLife[0].begin(life)
	w.reach("up", life.ready)
	w.kill("so that the journal is on disk")
	w.reach("the journal is on disk", func() string {
		if found, err := filepath.Glob(w.path("root/journal/*.txtar")); err != nil || len(found) == 0 {
			return "it isn't"
		}
		return ""
	})
	w.arm("after " + string(pod.CleanPod) + "#1")
	life.end()
	w.reach("down", life.gone)
}

// TestKillPointsAtRandom kills the agent again and again, at points and between them, also while its disk is full.
func TestKillPointsAtRandom(t *testing.T) {
	seeds := []uint64{1, 3} // a long life and a short one
	if *seedFlag != 0 {
		seeds = []uint64{*seedFlag}
	}
	var wg sync.WaitGroup
	for _, seed := range seeds {
		wg.Go(func() {
			t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { randomKills(t, rand.New(rand.NewPCG(seed, 3)), nil) })
		})
	}
	for i, disk := range smallDisks() {
		wg.Go(func() {
			t.Run(disk.name, func(t *testing.T) { randomKills(t, rand.New(rand.NewPCG(seeds[0], uint64(i))), disk) })
		})
	}
	wg.Wait()
}

// randomKills kills the agent at random, and on a full disk if there is a disk.
func randomKills(t *testing.T, rnd *rand.Rand, disk *smallDisk) {
	w := newWorldOn(t, disk)
	life := newLife(w)
	w.start()
	if disk != nil { // an agent that never ran can't begin there
		w.reach("the agent answers, and has its reserve", func() string {
			if !life.answers() {
				return "it doesn't answer"
			}
			if found, err := filepath.Glob(w.path("root/reserve/*")); err != nil || len(found) < 8 {
				return "it has no reserve"
			}
			return ""
		})
	}
	plan := longLife
	if rnd.IntN(3) == 0 {
		plan = shortLife
	}
	each := *killsFlag/len(plan) + 1
	for _, phase := range plan {
		w.logf("=== %s", phase.name)
		end := w.killAtRandom(rnd, each)
		phase.begin(life)
		if disk != nil {
			life.dieOnFullDisk(disk, rnd, each)
		}
		begun := time.Now()
		w.reach(phase.name, func() string { return phase.goal(life) })
		t.Logf("%s: reached after %s", phase.name, time.Since(begun).Round(time.Millisecond))
		end()
	}
	t.Logf("killed %d times", len(w.deaths))
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
