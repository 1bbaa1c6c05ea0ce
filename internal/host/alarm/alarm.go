// Package alarm wakes a goroutine when the kernel reports that memory may run short, or that a control group has
// changed, so that the memory figures needn't be read periodically. An event carries no figures, and may be a false
// alarm.
package alarm

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Kind is a kind of kernel events.
type Kind int

const (
	// Stalls reports that tasks have waited for memory for a total of 100 ms within 2 s (PSI,
	// Documentation/accounting/psi.rst). Path is /proc/pressure/memory, or the file memory.pressure of a cgroup v2
	// group (for which no controllers need be enabled). There is at most one event in 2 s.
	Stalls Kind = iota
	// Usage reports that the memory usage of a cgroup v1 group, including page cache, has risen above Bytes or fallen
	// below it (Documentation/admin-guide/cgroup-v1/memory.rst, "Memory thresholds"). Path is the group's directory.
	// Setting a new threshold waits for the kernel (synchronize_rcu), often for half a millisecond.
	Usage
	// Changes reports that the content of a cgroup v2 file has changed. The file has to support notifications, as
	// memory.events does. Path is the file. The kernel merges changes within 10 ms.
	Changes
)

// Trigger selects events.
type Trigger struct {
	// Name identifies these events in Drain. It is unique within a set.
	Name string
	Kind Kind
	Path string
	// Bytes is the threshold of a Usage trigger, 0 for other kinds.
	Bytes uint64
}

// Alarm reports the events of a set of triggers. Its methods are safe for concurrent use.
type Alarm struct {
	events *wake.Keyed[string]

	mu      sync.Mutex
	sources map[Trigger]*source
	// polling says that Run is polling. removed are the sources that can only be closed once Run isn't polling.
	polling bool
	removed []*source
	// bell is an eventfd that interrupts Run's poll; -1 if Run isn't running.
	bell  int
	ended bool
}

// New returns an Alarm without triggers.
func New() *Alarm {
	return &Alarm{events: wake.NewKeyed[string](), sources: map[Trigger]*source{}, bell: -1}
}

// Woken receives after an event.
func (a *Alarm) Woken() <-chan struct{} { return a.events.Woken() }

// Drain returns the names of the triggers that had an event since the previous Drain, in no order.
func (a *Alarm) Drain() []string { return a.events.Drain() }

// Set replaces the set of triggers. It returns, by name, the reasons why triggers aren't in force: for example, the
// kernel has no PSI, or there is no such group. Triggers that are already in force stay so, and lose no event.
//
// A trigger isn't in force any more after its file or group was removed, which counts as an event. If there is a new
// file or group by then, the next Set puts the trigger in force again.
//
// Conditions that exist before Set cause no event: read the figures after Set. No trigger is in force after Run's end.
func (a *Alarm) Set(triggers []Trigger) (failed map[string]error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return nil
	}
	changed := false
	failed = map[string]error{}
	wanted := make(map[Trigger]bool, len(triggers))
	for _, t := range triggers {
		wanted[t] = true
		if s := a.sources[t]; s != nil && s.current(t) {
			continue
		}
		a.remove(t)
		changed = true
		s, err := open(t)
		if err != nil {
			failed[t.Name] = err
			continue
		}
		a.sources[t] = s
	}
	for t := range a.sources {
		if !wanted[t] {
			a.remove(t)
			changed = true
		}
	}
	if changed {
		a.ring()
	}
	if !a.polling {
		a.closeRemoved()
	}
	return failed
}

// remove ends a trigger that is in force; otherwise it does nothing. a.mu is held.
func (a *Alarm) remove(t Trigger) {
	if s := a.sources[t]; s != nil {
		delete(a.sources, t)
		a.removed = append(a.removed, s)
	}
}

// closeRemoved closes the removed sources. Run isn't polling, and a.mu is held.
func (a *Alarm) closeRemoved() {
	for _, s := range a.removed {
		s.close()
	}
	a.removed = nil
}

// ring interrupts Run's poll. a.mu is held.
func (a *Alarm) ring() {
	if a.bell >= 0 {
		_, _ = unix.Write(a.bell, binary.NativeEndian.AppendUint64(nil, 1)) // fails only at 2⁶⁴ unread rings
	}
}

// gap is the minimum time between a poll that returned events and the next poll: usage can cross a threshold thousands
// of times a second.
const gap = 10 * time.Millisecond

// Run waits for events until ctx ends. It is called once. It occupies a thread: the Go runtime can't wait for events of
// these files.
func (a *Alarm) Run(ctx context.Context) error {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("wait for the kernel's events about memory: eventfd: %w", err)
	}
	a.mu.Lock()
	a.bell = bell
	a.mu.Unlock()
	defer a.end()
	rung := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(rung)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ring()
	})
	defer func() {
		if !stop() {
			<-rung
		}
	}()
	for {
		fds, triggers := a.polled()
		if ctx.Err() != nil { // polled may have read the ring of stop
			return nil
		}
		if err := poll(fds); err != nil {
			return fmt.Errorf("wait for the kernel's events about memory: poll: %w", err)
		}
		if a.report(fds, triggers) {
			select {
			case <-ctx.Done():
			case <-time.After(gap):
			}
		}
	}
}

// poll waits until a descriptor has an event.
func poll(fds []unix.PollFd) error {
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err
		}
	}
}

// polled returns the descriptors to poll: the bell, and those of the triggers.
func (a *Alarm) polled() ([]unix.PollFd, []Trigger) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var counter [8]byte
	_, _ = unix.Read(a.bell, counter[:]) // fails if the bell hasn't been rung
	a.polling = true
	fds := make([]unix.PollFd, 0, 1+len(a.sources))
	fds = append(fds, unix.PollFd{Fd: int32(a.bell), Events: unix.POLLIN})
	triggers := make([]Trigger, 0, len(a.sources))
	for t, s := range a.sources {
		fds = append(fds, unix.PollFd{Fd: int32(s.fd), Events: events(t.Kind)})
		triggers = append(triggers, t)
	}
	return fds, triggers
}

// report reports the events that a poll returned, and whether there are any.
func (a *Alarm) report(fds []unix.PollFd, triggers []Trigger) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.polling = false
	defer a.closeRemoved()
	var names []string
	for i, t := range triggers {
		fd := &fds[1+i]
		s := a.sources[t]
		if fd.Revents == 0 || s == nil || int32(s.fd) != fd.Fd {
			continue // Set has removed it meanwhile
		}
		if !s.rearm(t.Kind, fd.Revents) || !s.current(t) {
			a.remove(t)
		}
		names = append(names, t.Name)
	}
	a.events.Wake(names...)
	return len(names) > 0
}

// end closes all descriptors.
func (a *Alarm) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for t := range a.sources {
		a.remove(t)
	}
	a.polling = false // needed also after an error of poll
	a.closeRemoved()
	_ = unix.Close(a.bell)
	a.bell, a.ended = -1, true
}
