package containergc

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

// place is a real directory of logs, who knows pods, and who is told.
type place struct {
	*layout.Dirs
	dir string

	mu      sync.Mutex
	known   map[types.UID]bool
	unknown bool // who runs isn't known yet
	fail    error
	events  []string
	removed int
	lists   int
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	return &place{dir: dir, known: map[types.UID]bool{},
		Dirs: layout.NewDirs(layout.DirsConfig{PodLogsDir: filepath.Join(dir, "pods"), LinksDir: filepath.Join(dir, "containers")})}
}

func (p *place) Synced() bool { p.mu.Lock(); defer p.mu.Unlock(); return !p.unknown }

func (p *place) Knows(uid types.UID) bool { p.mu.Lock(); defer p.mu.Unlock(); return p.known[uid] }

func (p *place) know(uid types.UID, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[uid] = known
}

func (p *place) NodeEvent(eventType string, reason pod.Reason, message string) {
	p.events = append(p.events, eventType+" "+string(reason)+": "+message)
}

func (p *place) LogDirsRemoved(n int) { p.removed += n }

func (p *place) Orphans() ([]layout.Pod, error) {
	p.mu.Lock()
	p.lists++
	p.mu.Unlock()
	if p.fail != nil {
		return nil, p.fail
	}
	return p.Dirs.Orphans()
}

func (p *place) looks() int { p.mu.Lock(); defer p.mu.Unlock(); return p.lists }

func (p *place) RemovePod(who layout.Pod) error {
	if p.fail != nil {
		return p.fail
	}
	return p.Dirs.RemovePod(who)
}

func (p *place) RemoveDeadLinks() error { return errors.Join(p.fail, p.Dirs.RemoveDeadLinks()) }

// add makes the logs of a pod.
func (p *place) add(t *testing.T, uid string) {
	t.Helper()
	who := layout.Pod{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)}
	if err := errors.Join(p.Create(who, "main"), p.Link(who, layout.Instance{Container: "main", ID: "id"})); err != nil {
		t.Fatal(err)
	}
}

// left lists the UIDs of pods with logs, and of those with links.
func (p *place) left(t *testing.T) (logs, links string) {
	t.Helper()
	for _, kind := range []string{"pods", "containers"} {
		entries, err := os.ReadDir(filepath.Join(p.dir, kind))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if kind == "pods" {
				logs += e.Name()[strings.LastIndex(e.Name(), "_")+1:]
			} else {
				links += strings.TrimPrefix(e.Name()[:strings.Index(e.Name(), "_")], "pod-")
			}
		}
	}
	return logs, links
}

func (p *place) sweep(t *testing.T, sole bool) *LogSweep {
	return NewLogSweep(LogsConfig{Logs: p, Pods: p, Events: p, Meter: p, Log: testr.New(t), Sole: sole})
}

func (p *place) want(t *testing.T, when, logs, links string) {
	t.Helper()
	synctest.Wait()
	if gotLogs, gotLinks := p.left(t); gotLogs != logs || gotLinks != links {
		t.Errorf("%s: logs of %q and links of %q are left, want %q and %q", when, gotLogs, gotLinks, logs, links)
	}
}

func TestLogsOfPodsThatAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		for _, uid := range []string{"a", "b", "c", "x"} { // x is another agent's
			p.add(t, uid)
			p.know(types.UID(uid), uid != "x")
		}
		s := p.sweep(t, false)
		defer start(t, s.Run)()
		p.want(t, "all known", "abcx", "abcx")
		p.know("a", false)
		p.know("b", false)
		time.Sleep(resync - time.Second)
		p.want(t, "nobody said that they are gone", "abcx", "abcx")
		s.Wake()
		p.want(t, "not seen twice", "abcx", "abcx")
		p.know("b", true) // came back
		time.Sleep(every - time.Second)
		p.want(t, "not for a minute", "abcx", "abcx")
		time.Sleep(time.Second)
		p.want(t, "a is gone for a minute", "bcx", "bcx")
		if want := []string{"Normal PodLogsRemoved: Removed the logs of pods that are gone: default/pod-a"}; !slices.Equal(p.events, want) || p.removed != 1 {
			t.Errorf("events %q, counted %d", p.events, p.removed)
		}
		p.know("b", false)
		p.know("c", false)
		time.Sleep(resync)
		p.want(t, "found without a wake-up", "bcx", "bcx")
		time.Sleep(every)
		p.want(t, "and a minute later", "x", "x")
		lists := p.looks()
		time.Sleep(24 * time.Hour)
		if per := (p.looks() - lists) / 24; per > 2 {
			t.Errorf("%d looks an hour while nothing happens", per)
		}
	})
}

func TestLogsInADirOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.unknown = true
		for _, uid := range strings.Split("abcdefg", "") {
			p.add(t, uid)
		}
		p.know("g", true)
		s := p.sweep(t, true)
		stop := start(t, s.Run)
		time.Sleep(2 * resync)
		p.want(t, "nothing is known yet", "abcdefg", "abcdefg")
		p.mu.Lock()
		p.unknown = false
		p.mu.Unlock()
		s.Wake()
		time.Sleep(2*every + time.Second)
		p.want(t, "a minute after it is known", "g", "g")
		stop()
		if len(p.events) != 1 || !strings.HasSuffix(p.events[0], "default/pod-d, default/pod-e and 1 more") || p.removed != 6 {
			t.Errorf("events %q, counted %d", p.events, p.removed)
		}
	})
}

func TestFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		p.add(t, "a")
		s := p.sweep(t, true)
		s.sweep()
		p.fail = errors.New("read-only file system")
		if s.sweep() {
			t.Error("wants to try again soon what failed")
		}
		p.want(t, "nothing can be done", "a", "a")
		p.fail = nil
		s.sweep()
		p.want(t, "it can again", "", "")
	})
}

type stuck struct{ *place }

func (s stuck) RemovePod(layout.Pod) error { return errors.New("busy") }

func TestOneFailureDoesntStopTheRest(t *testing.T) {
	p := newPlace(t)
	p.add(t, "a")
	s := p.sweep(t, true)
	s.cfg.Logs = stuck{p}
	s.sweep()
	if s.sweep() || len(p.events) > 0 || p.removed > 0 {
		t.Errorf("events %q, counted %d", p.events, p.removed)
	}
	if logs, _ := p.left(t); logs != "a" {
		t.Errorf("left %q", logs)
	}
	s.cfg.Logs = p
	s.sweep()
	if logs, links := p.left(t); logs+links != "" {
		t.Errorf("left %q, %q", logs, links)
	}
}
