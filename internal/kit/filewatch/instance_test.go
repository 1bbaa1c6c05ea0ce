package filewatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
)

// TestOneInstanceForAll: watchers share the kernel's watches, and none of them takes another's away.
func TestOneInstanceForAll(t *testing.T) {
	before, _ := filewatchtest.Count(t)
	i, dir := newInstance(logr.Discard()), t.TempDir()
	path := filepath.Join(dir, "file")
	do(t, os.WriteFile(path, nil, 0o600))
	open := func(lead func(Trail)) *Watcher {
		w := i.Open(lead)
		arm(t, w)
		return w
	}
	whole, one := open(func(t Trail) { t.Directory(dir) }), open(func(t Trail) { t.Path(path) })
	lead := open(func(t Trail) { t.Path(filepath.Join(dir, "sub", "sub")) })
	if n, _ := filewatchtest.Count(t); n != before+1 {
		t.Errorf("%d instances", n-before)
	}
	do(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o600))
	await(t, whole, Event{Name: "other", Op: Done})
	do(t, os.WriteFile(path, []byte("x"), 0o600))
	await(t, whole, Event{Name: "file", Op: Done})
	for _, e := range await(t, one, Event{Name: "file", Op: Done}) {
		if e.Name != "file" {
			t.Errorf("got %v of the directory", e)
		}
	}
	do(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	if early := await(t, lead, Event{Op: Rescan}); len(early) > 0 {
		t.Errorf("got %v of what is only on the way", early)
	}
	whole.Close()
	do(t, os.WriteFile(path, []byte("y"), 0o600))
	await(t, one, Event{Name: "file", Op: Done})
	one.Close()
	lead.Close()
	if n, _ := filewatchtest.Count(t); n != before {
		t.Errorf("%d instances outlive the last watcher", n-before)
	}
	if err := lead.Arm(); err == nil {
		t.Error("a closed watcher watches")
	}
	if n, _ := filewatchtest.Count(t); n != before {
		t.Errorf("%d instances after the end", n-before)
	}
	again := open(func(t Trail) { t.Directory(dir) })
	do(t, os.WriteFile(path, []byte("z"), 0o600))
	await(t, again, Event{Name: "file", Op: Done})
	again.Close()
}

// TestSlowReader: a watcher that isn't read holds up no other, and has to read everything again when too much has
// happened.
func TestSlowReader(t *testing.T) {
	i, dir := newInstance(logr.Discard()), t.TempDir()
	slow, quick := i.Open(func(t Trail) { t.Directory(dir) }), i.Open(func(t Trail) { t.Directory(dir) })
	defer slow.Close()
	defer quick.Close()
	arm(t, slow)
	arm(t, quick)
	for n := range 10 {
		name := fmt.Sprint(n)
		do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		await(t, quick, Event{Name: name, Op: Done})
	}
	for n := range 2*maxQueue + 10 {
		slow.push(Event{Dir: dir, Name: fmt.Sprint(n), Op: Done})
	}
	slow.mu.Lock()
	if n := len(slow.queue); n > maxQueue {
		t.Errorf("%d events wait", n)
	}
	slow.mu.Unlock()
	await(t, slow, Event{Op: Rescan})
}

// TestEventsLost: each watcher reads everything again.
func TestEventsLost(t *testing.T) {
	i := newInstance(logr.Discard())
	var watchers []*Watcher
	for range 3 {
		w := i.Open(func(trail Trail) { trail.Directory("/") })
		defer w.Close()
		arm(t, w)
		watchers = append(watchers, w)
	}
	i.dispatch(i.kernel, -1, unix.IN_Q_OVERFLOW, "")
	for _, w := range watchers {
		await(t, w, Event{Op: Rescan})
	}
	// The kernel's events end, which nobody has seen yet.
	do(t, i.kernel.file.SetReadDeadline(time.Unix(1, 0)))
	for _, w := range watchers {
		await(t, w, Event{Op: Rescan})
		arm(t, w)
	}
}

// TestComeAndGo: whatever watchers come and go, changes reach each that is armed.
func TestComeAndGo(t *testing.T) {
	i, dir := newInstance(logr.Discard()), t.TempDir()
	stays := i.Open(func(t Trail) { t.Directory(dir) })
	defer stays.Close()
	arm(t, stays)
	end := make(chan struct{})
	var others sync.WaitGroup
	sub := filepath.Join(dir, "sub")
	do(t, os.Mkdir(sub, 0o700))
	for g := range 4 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-end:
					return
				default:
				}
				if err := comeAndGo(i, sub, fmt.Sprint(g, "-", n)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 300 {
		name := fmt.Sprint(n)
		do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		await(t, stays, Event{Name: name, Op: Done})
	}
	close(end)
	others.Wait()
}

// comeAndGo watches a directory until a file that it writes there is reported. It is the only watcher at times.
func comeAndGo(i *Instance, dir, name string) error {
	w := i.Open(func(t Trail) { t.Path(dir) })
	defer w.Close()
	late := time.After(patience)
	for again := true; again; {
		if err := errors.Join(w.Arm(), os.WriteFile(filepath.Join(dir, name), nil, 0o600)); err != nil {
			return err
		}
		for again = false; !again; {
			select {
			case e := <-w.Events():
				if e.Name == name && e.Op == Done {
					return nil
				}
				again = e.Op == Rescan // armed too late for this change
			case <-late:
				return fmt.Errorf("%s isn't reported", name)
			}
		}
	}
	return nil
}
