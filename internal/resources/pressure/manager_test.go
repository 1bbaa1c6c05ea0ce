package pressure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	. "github.com/deckhand-node/deckhand/internal/resources/pressure"
)

// bell is an alarm that the test rings.
type bell struct{ *wake.Keyed[string] }

func (bell) Set([]alarm.Trigger) map[string]error { return nil }

// node is the node of a Manager, with the order of what happens on it.
type node struct {
	t     *testing.T
	m     *Manager
	bell  bell
	full  wake.Slot
	file  string
	boot  string
	began time.Time
	end   func()

	// mu orders the test's changes before the Manager's calls.
	mu       sync.Mutex
	free     map[Signal]int64
	pods     []Pod
	slow     time.Duration // how long an observation takes
	happened []string
	ages     []string // of the figures by which was decided
	pressure admission.Pressure
	replace  func()
	reserve  *room.Reserve
	unlisted error
	recorded bool // whether pods have records of their ends
	byNeeds  bool // whether pods have only the figures that are needed
	looks    int
	lists    int
	counts   int
}

func (n *node) run(s Settings) {
	n.bell, n.full = bell{wake.NewKeyed[string]()}, wake.NewSlot()
	n.m = New(Config{Settings: s, State: n.file, Boot: n.boot, Reserve: n.reserve, Now: func() time.Duration { return time.Since(n.began) },
		Log: testr.New(n.t), Meter: n, Events: n,
		Wake:    func(uid types.UID) { n.note("end " + string(uid)) },
		Publish: func(p admission.Pressure) { n.pressure = p },
		Alarm:   n.bell,
		Full:    n.full,
		Observe: func(context.Context, []Threshold) (Observation, error) {
			n.mu.Lock()
			n.looks++
			o := Observation{At: time.Since(n.began), Readings: map[Signal]Reading{}}
			var err error
			for s, free := range n.free {
				if free < 0 {
					err = errors.Join(err, errors.New(string(s)+" can't be read"))
					continue
				}
				o.Readings[s] = Reading{free, 10 * gi}
			}
			slow := n.slow
			n.mu.Unlock()
			time.Sleep(slow)
			return o, err
		},
		Processes: func() (Reading, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.counts++
			if n.free[Processes] < 0 {
				return Reading{}, errors.New("they can't be counted")
			}
			return Reading{n.free[Processes], 10 * gi}, nil
		},
		Pods: func(_ context.Context, needs Needs) ([]Pod, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.lists++
			list := slices.Clone(n.pods)
			for i := range list {
				if n.byNeeds && !needs.Memory {
					list[i].Memory = 0
				}
				if n.byNeeds && !needs.Disk {
					list[i].Volumes = Space{}
				}
			}
			if n.replace != nil {
				n.replace()
				n.replace = nil
			}
			return list, n.unlisted
		},
		Holding: func(uid types.UID) bool {
			n.mu.Lock()
			defer n.mu.Unlock()
			return slices.ContainsFunc(n.pods, func(p Pod) bool { return p.UID == string(uid) && p.Active })
		},
		Version: func(uid types.UID) string {
			n.mu.Lock()
			defer n.mu.Unlock()
			if i := slices.IndexFunc(n.pods, func(p Pod) bool { return p.UID == string(uid) }); i >= 0 {
				return n.pods[i].Version
			}
			return ""
		},
		Recorded: func(types.UID) bool { return n.recorded },
		Reclaim: func(_ context.Context, r Reclaim) error {
			n.note("remove " + string(r))
			return nil
		}})
	if err := n.m.Restore(n.t.Context()); err != nil {
		n.note("bad state")
	}
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error, 1)
	go func() { done <- n.m.Run(ctx) }()
	n.end = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		n.steps()
	}
}

// steps replays the transcript, fails the test for a decision that differs, and returns the steps.
func (n *node) steps() (list []Step) {
	for line := range bytes.Lines(n.m.Transcript()) {
		s, err := ParseStep(line)
		if err != nil {
			n.t.Fatalf("%v: %s", err, line)
		}
		if again := s.Replay(); !reflect.DeepEqual(again, s.Outcome) {
			n.t.Errorf("decided %+v, and now %+v, on %s", s.Outcome, again, line)
		}
		list = append(list, s)
	}
	return list
}

func (n *node) note(what string) { n.happened = append(n.happened, what) }

func (n *node) NodeEvent(_ string, reason pod.Reason, message string) {
	n.note(string(reason) + ": " + message)
}

func (n *node) Evicted(signal string) { n.note("counted " + signal) }
func (n *node) Decided(signal string, age time.Duration) {
	n.ages = append(n.ages, signal+" "+age.String())
}

func (n *node) looksSoFar() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.looks
}

func (n *node) after(d time.Duration) {
	n.looksSoFar() // orders what the test did before what follows
	time.Sleep(d)
	synctest.Wait()
}

func within(t *testing.T, test func(*node)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pressure_state")
	synctest.Test(t, func(t *testing.T) {
		test(&node{t: t, file: file, boot: "boot-1", began: time.Now().Add(-time.Hour), end: func() {}, free: map[Signal]int64{}})
	})
}

// TestStateOnAFullDisk: the end of a pod is recorded on a full disk, with room that is kept for that.
func TestStateOnAFullDisk(t *testing.T) {
	within(t, func(n *node) {
		dir := filepath.Dir(n.file)
		if err := unix.Mount("deckhand-test", dir, "tmpfs", 0, "size=32m"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}()
		n.reserve = room.NewReserve(dir)
		ctx, cancel := context.WithCancel(n.t.Context())
		cancel()
		if err := n.reserve.Run(ctx); err != nil { // it makes the reserve, and ends
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 32<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		n.free[NodeBytes] = mi
		n.pods = []Pod{hog("a", 50*mi, 0, 0)}
		n.pods[0].Volumes.Bytes = gi
		n.run(settings(hard(NodeBytes, gi)))
		n.after(0)
		if saved, err := os.ReadFile(n.file); err != nil || !strings.Contains(string(saved), `"ending":"a"`) {
			t.Errorf("the state file has %q, %v", saved, err)
		}
		n.end()
	})
}

func TestManagerActsInOrder(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes], n.free[NodeMemory] = 5*gi, 5*gi
		n.pods = []Pod{hog("a", 50*mi, 0, 0), hog("b", 40*mi, 0, 0)}
		for i := range n.pods {
			n.pods[i].Volumes.Bytes = gi
		}
		n.run(settings(hard(NodeMemory, 100*mi), hard(NodeBytes, gi)))
		n.after(0)
		if n.lists > 0 || len(n.happened) > 0 {
			t.Errorf("without pressure pods were measured %d times: %q", n.lists, n.happened)
		}
		n.free[NodeBytes] = 1 * mi
		n.full.Wake()
		n.after(0)
		want := []string{
			"EvictionThresholdMet: Attempting to reclaim ephemeral-storage", "remove dead containers", "remove unused images",
			"counted nodefs.available", "end a",
		}
		if !slices.Equal(n.happened, want) {
			t.Errorf("%q, want %q", n.happened, want)
		}
		if !n.pressure.Disk || n.pressure.Memory {
			t.Errorf("conditions %+v", n.pressure)
		}
		v := n.m.Termination("a")
		if v == nil || v.Reason != "Evicted" || !v.Disruption || *v.Grace != time.Second ||
			!strings.HasSuffix(v.Message, "Signal: nodefs.available.") || n.m.Termination("b") != nil {
			t.Errorf("terminations %+v, %+v", v, n.m.Termination("b"))
		}
		// The end of its containers leads to fresh figures at once.
		n.pods[0].Active = false
		n.free[NodeBytes] = 2 * gi
		n.m.PodsChanged()
		n.after(0)
		if len(n.happened) != len(want) {
			t.Errorf("afterwards %q", n.happened[len(want):])
		}
		n.m.Forget("a")
		if n.m.Termination("a") != nil {
			t.Error("a pod that is gone isn't forgotten")
		}
		n.end()
	})
}

// TestTranscript: decisions that differ from the last one are kept with their inputs, up to a limit.
func TestTranscript(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes] = 5 * gi
		for i := range 500 {
			n.pods = append(n.pods, hog(fmt.Sprint("pod-", i), 50*mi, 0, 0))
			n.pods[i].Volumes.Bytes = gi
		}
		n.run(settings(hard(NodeBytes, gi)))
		n.after(time.Hour)
		if list := n.steps(); len(list) > 0 {
			t.Errorf("at rest: %+v", list)
		}
		n.free[NodeBytes] = mi
		n.full.Wake()
		n.after(0)
		var happened []string
		for _, s := range n.steps() {
			happened = append(happened, strings.TrimSpace(fmt.Sprintln(s.Outcome.Pressure.Disk, s.Outcome.Reclaim, s.Outcome.Evicts, len(s.Pods))))
		}
		want := []string{"true dead containers  0", "true unused images  0", "true  default/pod-0 500"}
		if !slices.Equal(happened, want) {
			t.Errorf("%q", happened)
		}
		for range 10 {
			n.mu.Lock()
			n.pods = n.pods[1:]
			n.mu.Unlock()
			n.m.PodsChanged()
			n.after(time.Minute)
		}
		if size := len(n.m.Transcript()); len(n.happened) < 20 || size == 0 || size > 300<<10 {
			t.Errorf("%d bytes after %d things happened", size, len(n.happened))
		}
		n.end()
	})
}

// At rest it observes rarely, without thresholds never.
func TestManagerRests(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes] = 9 * gi
		n.run(settings(hard(NodeBytes, gi)))
		n.after(time.Hour)
		if n.looks < 50 || n.looks > 70 {
			t.Errorf("%d observations in an hour", n.looks)
		}
		n.m.SetSettings(settings())
		n.after(0)
		before := n.looks
		n.after(time.Hour)
		if n.looks != before {
			t.Errorf("%d observations without a threshold", n.looks-before)
		}
		n.end()
	})
}

// TestManagerCounts: between observations processes alone are counted, and an observation follows at once when a count
// meets a threshold or fails.
func TestManagerCounts(t *testing.T) {
	within(t, func(n *node) {
		n.free[Processes] = 32_000
		n.run(settings(hard(Processes, 2_000)))
		n.after(time.Hour)
		if n.looks > 62 || n.counts < 170 || n.counts > 250 {
			t.Errorf("%d observations and %d counts in an hour", n.looks, n.counts)
		}
		for _, rate := range []int64{100, 1_000, 1_900} {
			n.free[Processes] = 32_000
			n.after(10 * time.Minute)
			var crossed time.Time
			for !n.pressure.PIDs {
				n.free[Processes] -= rate
				if n.free[Processes] < 2_000 && crossed.IsZero() {
					crossed = time.Now()
				}
				n.after(time.Second)
				if n.free[Processes] < -100_000 {
					t.Fatalf("%d a second isn't noticed", rate)
				}
			}
			if late := time.Since(crossed); late > 3*time.Second {
				t.Errorf("%d a second: noticed after %s", rate, late)
			}
		}
		n.free[Processes] = 32_000
		n.after(10*time.Minute + 20*time.Second)
		before := n.looks
		n.free[Processes] = -1
		n.after(16 * time.Second)
		if n.m.Status().Unread == nil || n.looks == before {
			t.Errorf("%d observations after a count failed: %+v", n.looks-before, n.m.Status())
		}
		n.end()
	})
}

// The faster a disk fills, the sooner it is observed again: it is noticed a few seconds after it crosses its threshold.
func TestManagerKeepsUp(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes] = 9 * gi
		n.run(settings(hard(NodeBytes, gi)))
		n.after(10 * time.Minute)
		crossed := time.Time{}
		for !n.pressure.Disk {
			n.free[NodeBytes] -= 50 * mi
			if n.free[NodeBytes] < gi && crossed.IsZero() {
				crossed = time.Now()
			}
			n.after(time.Second)
			if n.free[NodeBytes] < 0 {
				t.Fatal("the disk is full and it isn't noticed")
			}
		}
		if late := time.Since(crossed); late > 3*time.Second {
			t.Errorf("noticed after %s", late)
		}
		n.end()
	})
}

// An alarm is answered at once, also right after an observation. Many alarms cause an observation in a second.
func TestManagerAlarm(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory] = 150 * mi // observed each second
		n.run(settings(hard(NodeMemory, 100*mi)))
		n.after(10*time.Second + 10*time.Millisecond)
		before := n.looks
		for range 1000 {
			n.bell.Wake("memory")
			n.after(10 * time.Millisecond)
		}
		if more := n.looks - before; more < 10 || more > 21 {
			t.Errorf("%d observations in 10 s with 1000 alarms", more)
		}
		n.after(5 * time.Second)
		n.free[NodeMemory] = 50 * mi
		n.bell.Wake("memory")
		n.after(time.Millisecond)
		if !n.pressure.Memory {
			t.Error("an alarm waits for the next observation")
		}
		n.end()
	})
}

// A new agent continues: neither the condition nor a grace period begins anew. After a boot both do.
func TestManagerRestarts(t *testing.T) {
	within(t, func(n *node) {
		s := settings(soft(NodeMemory, 100*mi, time.Minute))
		n.free[NodeMemory] = 50 * mi
		n.pods = []Pod{hog("a", 50*mi, 0, 0)}
		n.run(s)
		n.after(40 * time.Second)
		n.end()
		n.run(s)
		n.after(21 * time.Second)
		if n.m.Termination("a") == nil {
			t.Error("the grace period began anew")
		}
		n.pods, n.free[NodeMemory] = nil, gi
		n.after(time.Second)
		n.end()
		n.pressure = admission.Pressure{}
		n.run(s)
		n.after(4 * time.Minute)
		if !n.pressure.Memory {
			t.Error("the condition ended with the agent")
		}
		n.after(2 * time.Minute)
		if n.pressure.Memory {
			t.Error("the condition doesn't end")
		}
		n.end()

		n.free[NodeMemory], n.pods = 50*mi, []Pod{hog("b", 50*mi, 0, 0)}
		n.run(s)
		n.after(50 * time.Second)
		n.end()
		n.boot = "boot-2"
		n.run(s)
		n.after(50 * time.Second)
		if n.m.Termination("b") != nil {
			t.Error("time of another boot counts")
		}
		n.after(15 * time.Second)
		if n.m.Termination("b") == nil {
			t.Error("after a boot nothing happens")
		}
		n.end()
	})
}

func TestManagerBadState(t *testing.T) {
	for name, text := range map[string]string{"half": `{"version":1,"boot":"boot-1","memory":{"met"`, "later": `{"version":9,"boot":"boot-1","memory":{"ending":"a","until":9e18}}`,
		"tomorrow": `{"version":1,"boot":"boot-1","memory":{"met":{"x":9000000000000000000},"freshAfter":9000000000000000000,"pressed":{"MemoryPressure":9000000000000000000}}}`,
		"negative": `{"version":1,"boot":"boot-1","memory":{"reclaimed":{"nodefs.available":-9,"memory.available":-9},"until":-9000000000000000000,"ending":"a"}}`,
		"nothing":  "", "list": "[]"} {
		t.Run(name, func(t *testing.T) {
			within(t, func(n *node) {
				if err := os.WriteFile(n.file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				n.free[NodeMemory] = 50 * mi
				n.pods = []Pod{hog("a", 50*mi, 0, 0)}
				n.run(settings(hard(NodeMemory, 100*mi)))
				n.after(time.Second)
				if n.m.Termination("a") == nil {
					t.Error("it doesn't work")
				}
				n.end()
			})
		})
	}
}

// Figures that take long to read are as old as their beginning: no pod is ended on those from before the last one ended.
func TestManagerIsSlow(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory] = 50 * mi
		n.pods = []Pod{hog("a", 50*mi, 0, 0), hog("b", 40*mi, 0, 0)}
		n.slow = 15 * time.Second
		n.run(settings(hard(NodeMemory, 100*mi)))
		n.after(31 * time.Second) // it is observed again after the pods were measured
		if n.m.Termination("a") == nil {
			t.Error("no pod is ended")
		}
		if ages := strings.Join(n.ages, ", "); ages != "memory.available 15s" {
			t.Errorf("the age of the figures is recorded as %q", ages)
		}
		n.pods[0].Active = false // while the next observation is under way, which began before
		n.after(10 * time.Second)
		n.free[NodeMemory] = gi
		n.after(time.Minute)
		if n.m.Termination("b") != nil {
			t.Error("a second pod is ended on old figures")
		}
		n.end()
	})
}

// TestManagerOnFailedWrites: a write that fails on a full disk makes the node look at once, many of them once a second.
func TestManagerOnFailedWrites(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes] = 5 * gi
		n.run(settings(hard(NodeBytes, gi)))
		n.after(3 * time.Second)
		before := n.looksSoFar()
		n.full.Wake()
		n.after(0)
		if looks := n.looksSoFar() - before; looks != 1 {
			t.Errorf("it looked %d times at once", looks)
		}
		for range 100 {
			n.full.Wake()
			n.after(100 * time.Millisecond)
		}
		if looks := n.looksSoFar() - before; looks < 10 || looks > 12 {
			t.Errorf("it looked %d times in 10 s", looks)
		}
		// Under pressure failed writes are nothing new.
		n.free[NodeBytes] = 0
		n.full.Wake()
		n.after(2 * time.Second)
		before, lists := n.looksSoFar(), n.lists // of this part
		for range 100 {
			n.full.Wake()
			n.after(100 * time.Millisecond)
		}
		if n.looksSoFar()-before > 3 || n.lists-lists > 2 {
			t.Errorf("under pressure it looked %d times in 10 s, and measured pods %d times", n.looksSoFar()-before, n.lists-lists)
		}
		n.end()
	})
}

// TestManagerKilledBeforeTheRecord: an agent that is killed after it chose a pod, and before the pod's worker recorded that,
// leaves nothing to wait for: the next one chooses again. With the record it waits for that pod.
func TestManagerKilledBeforeTheRecord(t *testing.T) {
	for _, recorded := range []bool{false, true} {
		within(t, func(n *node) {
			n.free[NodeMemory] = 50 * mi
			n.pods = []Pod{hog("a", 50*mi, 0, 0), hog("b", 40*mi, 0, 0)}
			s := settings(hard(NodeMemory, 100*mi))
			n.run(s)
			n.after(0)
			n.end()
			if n.m.Termination("a") == nil {
				t.Fatal("the hog goes on")
			}
			n.recorded = recorded
			n.run(s)
			n.after(5 * time.Second)
			if again := n.m.Termination("a") != nil; again == recorded || n.m.Termination("b") != nil {
				t.Errorf("recorded %v: the hog is chosen again: %v; the other pod: %v", recorded, again, n.m.Termination("b"))
			}
			n.end()
		})
	}
}

// TestManagerOfTwoResources: memory that only critical pods use keeps nobody from ending a pod that fills the disk.
func TestManagerOfTwoResources(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory], n.free[NodeBytes] = mi, mi
		critical, filler := hog("critical", gi, 0, 0), Pod{UID: "filler", Name: "filler", Namespace: "default", Active: true, Volumes: Space{Bytes: gi}}
		critical.Critical = true
		n.pods, n.byNeeds = []Pod{critical, filler}, true
		n.run(settings(hard(NodeMemory, 100*mi), hard(NodeBytes, gi)))
		n.after(time.Second)
		if n.m.Termination("filler") == nil || n.m.Termination("critical") != nil || n.lists > 4 {
			t.Errorf("after %d lists: %q", n.lists, n.happened)
		}
		n.end()
	})
}

func TestManagerTellsOnce(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeBytes] = 1
		p := hog("etcd", 1, 0, 0)
		p.Critical, p.Volumes.Bytes = true, gi
		n.pods = []Pod{{UID: "web", Active: true, Volumes: Space{Bytes: 1}}, p}
		n.run(settings(hard(NodeBytes, gi)))
		n.after(150 * time.Second)
		count := 0
		for _, what := range n.happened {
			if strings.HasPrefix(what, "EvictionFindsNoPod") {
				count++
				if !strings.Contains(what, "most is used by pod default/etcd (1Gi): free") {
					t.Errorf("the largest user isn't named: %s", what)
				}
			}
		}
		if count < 2 || count > 3 {
			t.Errorf("in 150 s it is reported %d times that no pod may be ended", count)
		}
		n.end()
	})
}

// A pod that was removed and came back while the usage was measured isn't the one that was chosen.
func TestManagerReplacedPod(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory] = 50 * mi
		n.pods = []Pod{hog("a", 50*mi, 0, 0)}
		n.replace = func() { n.pods[0].Version = "another" }
		n.run(settings(hard(NodeMemory, 100*mi)))
		n.after(500 * time.Millisecond)
		if v := n.m.Termination("a"); v != nil {
			t.Errorf("the new one is ended: %+v", v)
		}
		n.end()
	})
}

// Pods that can't all be listed, or measured, aren't ended.
func TestManagerUnlistedPods(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory] = 50 * mi
		n.pods = []Pod{hog("a", 50*mi, 0, 0)}
		n.unlisted = errors.New("not yet")
		n.run(settings(hard(NodeMemory, 100*mi)))
		n.after(10 * time.Second)
		if n.m.Termination("a") != nil || len(n.happened) > 0 {
			t.Errorf("%q", n.happened)
		}
		n.unlisted = nil
		n.after(2 * time.Second)
		if n.m.Termination("a") == nil {
			t.Error("once they are listed, nothing happens")
		}
		n.end()
	})
}

// A pod that doesn't end is counted once, and after a while another one is chosen.
func TestManagerStuckPod(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory] = 50 * mi
		n.pods = []Pod{hog("stuck", 50*mi, 0, 0), hog("b", 40*mi, 0, 0)}
		n.run(settings(hard(NodeMemory, 100*mi)))
		n.after(5 * time.Minute)
		ends := slices.DeleteFunc(slices.Clone(n.happened), func(what string) bool { return !strings.HasPrefix(what, "end ") })
		if !slices.Equal(ends, []string{"end stuck", "end b"}) {
			t.Errorf("%q", ends)
		}
		n.end()
	})
}

// While a pod has to end, the others have a rank, and the state of thresholds ages.
func TestManagerShows(t *testing.T) {
	within(t, func(n *node) {
		n.free[NodeMemory], n.free[NodeBytes] = 50*mi, -1
		n.pods = []Pod{hog("a", 50*mi, 0, 0), hog("b", 40*mi, 30*mi, 0), hog("c", 40*mi, 50*mi, 0)}
		n.run(settings(soft(NodeMemory, 100*mi, time.Minute), hard(NodeBytes, gi)))
		n.after(0)
		if s := n.m.Status(); n.m.Rank("b") != nil || !s.Observed || s.Unread == nil || !s.Signals[0].Met || s.Signals[0].Left != time.Minute || s.Signals[1].Readable {
			t.Errorf("in the grace period %+v, rank %+v", s, n.m.Rank("b"))
		}
		n.after(9 * time.Second)
		if s := n.m.Status(); s.Age <= 0 || s.Signals[0].For != 9*time.Second || s.Signals[0].Left != 51*time.Second {
			t.Errorf("later %+v", s)
		}
		n.after(52 * time.Second)
		if b, c := n.m.Rank("b"), n.m.Rank("c"); n.m.Rank("a") != nil || b == nil || c == nil || b.Place != 1 || c.Place != 2 || c.Of != 2 ||
			b.Resource != "memory" || b.Used != 40*mi || *b.Request != 30*mi {
			t.Errorf("ranks %+v, %+v", b, c)
		}
		n.free[NodeMemory], n.pods[0].Active = gi, false
		n.m.PodsChanged()
		n.after(0)
		if n.m.Rank("b") != nil {
			t.Error("a rank without pressure")
		}
		n.end()
	})
}
