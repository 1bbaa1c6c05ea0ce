package events

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// life is an agent's: what it records, and what it logs.
type life struct {
	*Recorder
	history *History
	log     *safeLog
	// end stops the agent in order.
	end func()
}

// safeLog is a log that is read while it is written.
type safeLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *safeLog) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line + "\n")
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// begin starts an agent on a file.
func begin(t *testing.T, path string) *life {
	t.Helper()
	l := &life{Recorder: New(1000), log: &safeLog{}}
	l.history = NewHistory(path, l.Recorder, funcr.New(func(_, args string) { l.log.add(args) }, funcr.Options{}))
	if err := l.history.Restore(); err != nil {
		l.log.add(err.Error())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.history.Run(ctx) }()
	l.end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return l
}

// What happened is listed after restarts, in order and once each, also what happened to pods that are gone. A reader that goes on gets
// only what is new. What probes printed isn't written.
func TestHistorySurvivesRestarts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dir", "events.jsonl")
	synctest.Test(t, func(t *testing.T) {
		first := begin(t, path)
		began := time.Now()
		first.Event(podNamed("a"), warning("BackOff", "m"))
		first.Event(podNamed("b"), warning(pod.ReasonUnhealthy, "Readiness probe failed: SECRET"))
		time.Sleep(time.Hour)
		first.Event(podNamed("a"), pod.Event{Type: v1.EventTypeWarning, Reason: "BackOff", Message: "m"})
		first.Event(podNamed("b"), warning(pod.ReasonUnhealthy, combinedPrefix+"Liveness probe failed: SECRET"))
		odd := warning("Odd", "\x00\x9b")
		odd.Annotations = map[string]string{"starved_resource": "memory", "long": strings.Repeat("x", 2*maxStored)}
		first.Event(podNamed("c\n\x1b[2J\xff"), odd)
		before := lines(first.history.List())
		first.end()

		second := begin(t, path)
		second.Event(podNamed("a"), warning("Started", "m"))
		list := second.history.List()
		want := append([]string{"1 b Unhealthy: Readiness probe failed"}, before[1:]...)
		want[2] = "1 b Unhealthy: (combined from similar events): Liveness probe failed"
		want[3] = "1 c\n\x1b[2J� Odd: \x00�"
		expect(t, "after a restart", list, append(want, "1 a Started: m")...)
		if e := list[1]; !e.First.Equal(began) || !e.Last.Equal(began.Add(time.Hour)) || e.Type != v1.EventTypeWarning || e.Component != Component || e.Object.UID != podNamed("a").UID || e.Annotations != nil {
			t.Errorf("%+v", e)
		}
		if a := list[3].Annotations; len(a) != 2 || a["starved_resource"] != "memory" || len(a["long"]) != maxStored {
			t.Errorf("annotated with %v", a)
		}
		expect(t, "new ones", second.history.Since(list[len(list)-2].Seq), "1 a Started: m")
		expect(t, "none", second.history.Since(list[len(list)-1].Seq))
		second.end()

		third := begin(t, path)
		third.Event(podNamed("d"), warning("Third", "m"))
		list = third.history.List()
		expect(t, "after two", list, append(want, "1 a Started: m", "1 d Third: m")...)
		ids := map[uint64]bool{}
		for i, e := range list {
			if ids[e.ID] || i > 0 && e.Seq <= list[i-1].Seq {
				t.Errorf("ID %d, Seq %d", e.ID, e.Seq)
			}
			ids[e.ID] = true
		}
		third.end()
	})
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), "SECRET") {
		t.Errorf("%v, %s", err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// An agent that is killed has written what it recorded before the last pause, and a flood is written at a bounded rate.
func TestHistoryOfAFlood(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	writes := func() int {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, path)
		time.Sleep(saveEvery + 1)
		l.Event(podNamed("quiet"), warning("First", "m"))
		synctest.Wait()
		if n := writes(); n != 1 {
			t.Errorf("the first event after a quiet time: %d writes", n)
		}
		for i := range 600 { // for a minute
			l.Event(podNamed(fmt.Sprint("p", i%50)), warning("Flood", fmt.Sprint(i/50%10)))
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if n := writes(); n < 5 || n > 8 {
			t.Errorf("%d writes in a minute", n)
		}
		killed := New(1)
		h := NewHistory(path, killed, funcr.New(func(_, args string) { t.Error(args) }, funcr.Options{}))
		if err := h.Restore(); err != nil || len(h.List()) < 400 {
			t.Errorf("%v, %d entries of 501", err, len(h.List()))
		}
		l.end()
	})
}

// The file stays below its bound whatever is recorded. What happened to others within a day stays when one pod floods.
func TestHistoryIsBoundedAndFair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, path)
		l.Event(podNamed("old"), warning("Long", "ago"))
		time.Sleep(3 * time.Hour)
		l.Event(podNamed("quiet"), warning("Lately", "m"))
		l.Add(Entry{Type: v1.EventTypeWarning, Reason: "Huge", Message: "m", Object: v1.ObjectReference{Name: strings.Repeat("/x", maxRecord)}})
		for i := range 23 * 60 { // minutes; the budget of one UID is small
			p := podNamed("loud")
			p.UID = podNamed(fmt.Sprint(i)).UID + "loud"
			l.Event(p, warning("Flood", strings.Repeat("<", 5000)))
			time.Sleep(time.Minute)
			if info, err := os.Stat(path); err != nil || info.Size() > maxFile {
				t.Fatalf("%v: %v", info.Size(), err)
			}
		}
		l.end()
		again := begin(t, path)
		defer again.end()
		count := map[string]int{}
		for _, e := range again.history.List() {
			count[e.Object.Name]++
			if len(e.Message) > maxStored {
				t.Errorf("a message of %d bytes", len(e.Message))
			}
		}
		if count["quiet"] != 1 || count["old"] != 0 || count["loud"] < 50 || len(count) != 2 {
			t.Errorf("%v", count)
		}
	})
}

// Damage is logged, what can be read is, and the agent goes on writing.
func TestHistoryOfADamagedFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "events.jsonl")
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, path)
		l.Event(podNamed("a"), warning("One", "m"))
		time.Sleep(saveEvery + 1)
		synctest.Wait()
		l.Event(podNamed("b"), warning("Two", "m"))
		l.end()
	})
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	two := strings.SplitAfter(string(whole), "\n")
	misfit, err := checkpoint.Seal(historyVersion, map[string]any{"x": 1, "-1": 2, "7": "no entry", "9": record{Seq: 1}, "10": record{Seq: 1 << 63}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		text, logged string
		read, next   []string
	}{
		"cut short":      {two[0] + two[1][:9], "", []string{"1 a One: m"}, []string{"1 a One: m", "1 c Three: m"}},
		"a flipped bit":  {strings.Replace(two[0], "One", "Oen", 1) + two[1], "line 1: its checksum doesn't match; it was renamed", []string{"1 b Two: m"}, []string{"1 b Two: m", "1 c Three: m"}},
		"no text":        {"\x00\xff\n", "is damaged", nil, []string{"1 c Three: m"}},
		"no entries":     {string(misfit) + "\n", "", nil, []string{"1 c Three: m"}},
		"a newer format": {strings.Replace(two[0], `"version":1`, `"version":2`, 1), "newer version", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				l := begin(t, path)
				expect(t, "read", l.history.List(), tc.read...)
				synctest.Wait()
				killed := NewHistory(path, New(1), logr.Discard())
				_ = killed.Restore() // a file of a newer format is left alone
				expect(t, "before anything new", killed.List(), tc.read...)
				l.Event(podNamed("c"), warning("Three", "m"))
				l.end()
				if !strings.Contains(l.log.String(), tc.logged) || tc.logged == "" && l.log.String() != "" {
					t.Errorf("logged: %s", l.log)
				}
				l = begin(t, path)
				expect(t, "the next time", l.history.List(), tc.next...)
				l.end()
			})
		})
	}
}

// While nothing can be written that is logged once, events are listed all the same, and written when it works again.
func TestHistoryWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "events.jsonl")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, path)
		for i := range 5 {
			l.Event(podNamed("a"), warning("Wrong", fmt.Sprint(i)))
			time.Sleep(retryEvery)
		}
		synctest.Wait()
		if n := len(l.history.List()); n != 5 || strings.Count(l.log.String(), "Failed to store events") != 1 {
			t.Errorf("%d entries; logged:\n%s", n, l.log)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(retryEvery)
		synctest.Wait()
		if !strings.Contains(l.log.String(), "Storing events again") {
			t.Errorf("logged:\n%s", l.log)
		}
		l.end()
		l = begin(t, path)
		if n := len(l.history.List()); n != 5 {
			t.Errorf("%d entries after a restart", n)
		}
		l.end()
	})
	if leftovers, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !cmp.Equal(leftovers, []string{path}) {
		t.Errorf("%v, %v", leftovers, err)
	}
}

// What isn't kept any more takes no room, however long the file can't be written, and isn't there afterwards.
func TestHistoryOfAFloodWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	path := filepath.Join(dir, "events.jsonl")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(1000)
	h := NewHistory(path, r, logr.Discard())
	for i := range 5000 {
		r.Event(podNamed(fmt.Sprint(i)), warning("Wrong", strings.Repeat("x", maxStored)))
		if i%100 == 0 {
			h.save()
		}
	}
	if len(h.dirty) > 3*len(h.stored) {
		t.Errorf("%d to write, %d kept", len(h.dirty), len(h.stored))
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if !h.save() {
		t.Fatal("not written")
	}
	again := NewHistory(path, New(1), logr.Discard())
	if err := again.Restore(); err != nil || len(again.stored) != len(h.stored) {
		t.Errorf("%d restored of %d: %v", len(again.stored), len(h.stored), err)
	}
}
