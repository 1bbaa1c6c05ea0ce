package assign

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// instance is a container that runs or starts.
type instance struct {
	owner
	id string
	// pod is the name of its pod.
	pod string
	// has are the CPUs that it runs on; unread is set while they can't be read: it may run on any. stale says that
	// they have to be read again.
	has           cpuset.CPUSet
	unread, stale bool
	// logged says that the error of the last read is in the log.
	logged bool
	// behind is set after the agent has changed them itself, until the runtime has changed them, too.
	behind bool
	// starting says that the runtime is starting it: it can't be moved before that has ended.
	starting bool
	// foreign is set if an earlier agent started it, until a source has its pod: it keeps its CPUs, except those that
	// others have to themselves.
	foreign bool
	// failed is why it couldn't be moved.
	failed error
}

// Limits of moving containers.
const (
	// parallelMoves is how many containers are moved at a time.
	parallelMoves = 8
	// moveWithin is how long the runtime may take for one. Then the agent changes the cgroup itself.
	moveWithin = 5 * time.Second
	// clearWithin is how long a start waits until its CPUs are clear.
	clearWithin = 10 * time.Second
	// growAfter is how long CPUs that have become free wait for more of them.
	growAfter = 100 * time.Millisecond
	// adoptTries is how often a new agent tries to read the CPUs of running containers, and the file.
	adoptTries = 4
	// retryAfter is the delay until a failed move is tried again.
	retryAfter = 5 * time.Second
)

// Run keeps running containers on their CPUs, until ctx ends. First it finds out which CPUs running containers have.
func (m *Manager) Run(ctx context.Context) error {
	if !m.active() {
		close(m.adopted)
		<-ctx.Done()
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-m.conf.Ready:
	}
	for try := 1; !m.adopt(ctx, try >= adoptTries); try++ {
		if !wake.Sleep(ctx, retryAfter) {
			return nil
		}
	}
	close(m.adopted)
	// A runtime may still be carrying out what an earlier agent asked for when that was killed.
	overtaken := time.After(moveWithin)
	for {
		next := m.round(ctx)
		if next == 0 && !m.finish() {
			next = retryAfter
		}
		var due <-chan time.Time
		if next > 0 {
			due = time.After(next)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.shrunk:
		case <-due:
		case <-overtaken:
			m.readAgain()
		case <-m.grown:
			if !wake.Sleep(ctx, growAfter) {
				return nil
			}
		}
	}
}

// Changed has to be called when containers have started or ended, and after a change of the desired pods. It doesn't
// wait.
func (m *Manager) Changed() {
	if m.active() {
		m.grown.Wake()
	}
}

// finish ends the return to the policy none, once all containers run on all CPUs: only then the file says so, as
// another agent has to go on with it otherwise. It returns false if the file can't be written.
func (m *Manager) finish() bool {
	m.mu.Lock()
	done := m.undoes && m.alone && !m.waiting
	for _, i := range m.instances {
		done = done && !i.foreign && !i.starting
	}
	m.mu.Unlock()
	if !done {
		return true
	}
	if err := m.save(); err != nil {
		m.conf.Log.Error(err, "Can't record that no container has CPUs to itself any more; trying again")
		return false
	}
	m.mu.Lock()
	m.undoes = false
	m.mu.Unlock()
	return true
}

// round moves all running containers that aren't on their CPUs. It returns the delay of the next try; 0 if all could be
// moved.
func (m *Manager) round(ctx context.Context) time.Duration {
	if m.dropUnknown("") {
		m.record()
	}
	m.follow(ctx)
	m.mu.Lock()
	if shared := m.shared(); !shared.Equals(m.pool) { // somebody else may have changed the CPUs of containers meanwhile
		m.pool = shared
		m.allStale()
	}
	var sharing, alone []*instance
	for _, i := range m.instances {
		if i.starting || !i.unread && !i.stale && !i.behind && i.has.Equals(m.target(i)) {
			continue
		}
		if _, own := m.of[i.uid][i.name]; own {
			alone = append(alone, i)
		} else {
			sharing = append(sharing, i)
		}
	}
	m.mu.Unlock()
	// Those that share CPUs first leave those of others.
	if moved, all := m.moveAll(ctx, sharing), m.moveAll(ctx, alone); moved && all {
		return 0
	}
	return retryAfter
}

// readAgain has the CPUs of all instances read again, as an earlier agent's changes can't follow any more.
func (m *Manager) readAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alone = true
	m.allStale()
}

// allStale has the CPUs of all instances read again. The caller holds the mutex.
func (m *Manager) allStale() {
	for _, i := range m.instances {
		i.stale = true
	}
}

// moveAll moves some containers at a time, and reports whether all could be moved.
func (m *Manager) moveAll(ctx context.Context, list []*instance) bool {
	places := make(chan struct{}, parallelMoves)
	var moving sync.WaitGroup
	var failed atomic.Bool
	for _, i := range list {
		places <- struct{}{}
		moving.Go(func() {
			defer func() { <-places }()
			if !m.move(ctx, i) {
				failed.Store(true)
			}
		})
	}
	moving.Wait()
	return !failed.Load()
}

// target returns the CPUs that an instance should run on. The caller holds the mutex.
func (m *Manager) target(i *instance) cpuset.CPUSet {
	if _, own := m.of[i.uid][i.name]; !i.foreign || own {
		return m.wanted(i.uid, i.name)
	}
	if i.unread {
		return m.shared()
	}
	if left := i.has.Difference(m.exclusive()); !left.IsEmpty() {
		return left
	}
	return i.has
}

// move moves one container to its CPUs, and reports whether it could. If the runtime can't, the agent changes the
// cgroup itself, which fails only when the cgroup is gone.
func (m *Manager) move(ctx context.Context, i *instance) bool {
	before, readErr := m.conf.Cgroups.CPUs(ctx, i.uid, i.id)
	m.mu.Lock()
	if i.stale = false; readErr == nil {
		i.has, i.unread = before, false
	}
	set := m.target(i)
	if set.IsEmpty() || readErr == nil && before.Equals(set) && !i.behind {
		i.failed = nil
		m.notify()
		m.mu.Unlock()
		return true
	}
	r := m.update(i)
	m.mu.Unlock()
	r.CpusetCpus = set.String()
	within, cancel := context.WithTimeout(ctx, moveWithin)
	err := m.conf.Runtime.UpdateContainerResources(within, i.id, r)
	cancel()
	if err != nil && ctx.Err() != nil {
		return false // the next agent goes on
	}
	has, readErr := m.conf.Cgroups.CPUs(ctx, i.uid, i.id)
	if readErr == nil && !has.Equals(set) {
		if readErr = m.conf.Cgroups.SetCPUs(ctx, i.uid, i.id, set); readErr == nil {
			has, readErr = m.conf.Cgroups.CPUs(ctx, i.uid, i.id)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case readErr == nil && has.Equals(set), errors.Is(readErr, fs.ErrNotExist) && err == nil:
		// Runtimes with a kernel of their own have no cgroup here: their answer counts.
		i.has, i.unread, i.behind = set, false, err != nil
	case errors.Is(readErr, fs.ErrNotExist): // it has ended, or the runtime has to be asked again
		err = errors.Join(err, readErr)
	default:
		err = errors.Join(err, readErr, fmt.Errorf("it runs on the CPUs %s", listed(has)))
		i.has, i.unread = has, readErr != nil
	}
	repeated := err != nil && i.failed != nil && i.failed.Error() == err.Error()
	if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) && !repeated {
		m.conf.Log.Error(err, "The runtime can't move a container to other CPUs; trying again", "podUID", i.uid,
			"containerName", i.name, "containerID", i.id)
	}
	i.failed = err
	if err == nil || i.behind || !has.Equals(before) {
		m.notify()
	}
	return err == nil
}

// update returns the change of an instance besides its CPUs: of its CPU limit, if it has CPUs to itself from now on or
// had some until now. The caller holds the mutex.
func (m *Manager) update(i *instance) *runtimeapi.LinuxContainerResources {
	p := m.conf.Pod(i.uid)
	_, own := m.of[i.uid][i.name]
	switch {
	case m.conf.KeepQuota:
	case own:
		return &runtimeapi.LinuxContainerResources{CpuQuota: -1}
	case slices.ContainsFunc(asks(p), func(a ask) bool { return a.container == i.name }):
		return m.conf.Shared(p, pod.ContainerNamed(p, i.name))
	}
	return &runtimeapi.LinuxContainerResources{}
}

// notify wakes those that wait for instances to move or to end. The caller holds the mutex.
func (m *Manager) notify() {
	close(m.moved)
	m.moved = make(chan struct{})
}

// follow updates the list of instances to the state of the runtime. It returns false if the CPUs of a new one couldn't
// be read, although it has a cgroup.
func (m *Manager) follow(ctx context.Context) (complete bool) {
	runs := map[string]bool{}
	var unknown []*instance
	known := false
	m.mu.Lock()
	m.waiting = false
	// The list is read with the mutex held: otherwise an instance that has started meanwhile would count as ended.
	for _, o := range m.conf.Observed() {
		for n := range o.Containers {
			c := &o.Containers[n]
			if c.Ended() {
				continue
			}
			i := m.instances[c.ID]
			if runs[c.ID] = true; c.State != pod.ContainerRunning {
				m.waiting = m.waiting || i == nil
				continue
			}
			if i != nil {
				if i.unread && !i.starting {
					unknown = append(unknown, i)
				}
				if i.foreign && m.conf.Pod(o.UID) != nil {
					i.foreign, i.behind, known = false, i.behind || m.undoes, true
				}
				continue
			}
			i = &instance{owner: owner{o.UID, c.Name}, id: c.ID, pod: o.Name, unread: true,
				foreign: m.conf.Pod(o.UID) == nil}
			m.instances[c.ID] = i
			unknown = append(unknown, i)
		}
	}
	ended := false
	for id, i := range m.instances {
		if !runs[id] && !i.starting {
			delete(m.instances, id)
			ended = true
		}
	}
	if ended {
		m.notify()
	}
	known = known && m.conf.Static && m.isAdopted() // otherwise adopt will settle all
	if known {
		m.settle()
	}
	m.mu.Unlock()
	if known {
		m.record()
	}
	complete = true
	for _, i := range unknown {
		has, err := m.conf.Cgroups.CPUs(ctx, i.uid, i.id)
		m.mu.Lock()
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
			if complete = false; !i.logged {
				m.conf.Log.Error(err, "Can't read which CPUs a container runs on; moving it", "podUID", i.uid,
					"containerName", i.name, "containerID", i.id)
			}
			i.logged = true
		}
		if i.unread = err != nil; err == nil {
			i.has, i.logged = has, false
			m.notify()
		}
		m.mu.Unlock()
	}
	return complete
}

// record records the assignments. An error is only logged: a restart finds the CPUs of running containers by their
// cgroups.
func (m *Manager) record() {
	if err := m.save(); err != nil {
		m.conf.Log.Error(err, "Which CPUs containers have to themselves isn't recorded; containers run on")
	}
}

// runs reports whether an instance of a container runs or starts. The caller holds the mutex.
func (m *Manager) runs(of owner) bool {
	for _, i := range m.instances {
		if i.owner == of {
			return true
		}
	}
	return false
}

// clear waits until no other container runs on the CPUs. The error is a *pod.Failure that names a container that still
// does. It returns nil at once if the CPUs aren't the container's own any more.
func (m *Manager) clear(ctx context.Context, of owner, set cpuset.CPUSet) error {
	limit := time.After(clearWithin)
	for wakes := m.shrunk.Wake; ; wakes = func() {} {
		m.follow(ctx)
		m.mu.Lock()
		other, moved := m.other(of, set), m.moved
		own := m.of[of.uid][of.name].Equals(set)
		m.mu.Unlock()
		if other == nil || !own {
			return nil
		}
		wakes() // once: a move that failed is tried again later
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		case <-limit:
			return &pod.Failure{Reason: pod.ReasonFailedCreatePodContainer, Wait: pod.WaitForCPUs,
				Message: fmt.Sprintf("container %s of pod %s, which has to leave the CPUs %s", other.name, other.pod,
					set)}
		}
	}
}

// other returns an instance of another container that may run on one of the CPUs; nil if there is none. The caller
// holds the mutex.
func (m *Manager) other(of owner, set cpuset.CPUSet) *instance {
	return m.firstOf(func(i *instance) bool {
		return i.owner != of && (i.unread || i.stale || !i.has.Intersection(set).IsEmpty())
	})
}

// sharing returns an instance of another container that runs on one of the CPUs, by its cgroup; nil if there is none.
// The caller holds the mutex.
func (m *Manager) sharing(of owner, set cpuset.CPUSet) *instance {
	return m.firstOf(func(i *instance) bool {
		return i.owner != of && !i.unread && !i.has.Intersection(set).IsEmpty()
	})
}

func (m *Manager) firstOf(is func(*instance) bool) (first *instance) {
	for _, i := range m.instances {
		if is(i) && (first == nil || i.id < first.id) {
			first = i
		}
	}
	return first
}

// Starting makes sure that a created container starts on its present CPUs, which may not be those that it was created
// with. The caller has to call started after the start, successful or not.
func (m *Manager) Starting(ctx context.Context, p *v1.Pod, c *v1.Container, id string) (started func(), err error) {
	if !m.conf.Static {
		return m.Changed, nil // a container that was created with CPUs of its own gets all after its start
	}
	if err := m.await(ctx); err != nil {
		return nil, err
	}
	of := owner{p.UID, c.Name}
	for {
		m.mu.Lock()
		set, has := m.wanted(of.uid, of.name), m.created[of]
		if has.Equals(set) {
			delete(m.created, of)
			m.instances[id] = &instance{owner: of, id: id, pod: p.Name, has: set, starting: true}
			m.mu.Unlock()
			return func() { m.started(id) }, nil
		}
		own := m.of[of.uid][of.name].Equals(set)
		r := m.update(&instance{owner: of})
		m.mu.Unlock()
		if own {
			if err := m.clear(ctx, of, set); err != nil {
				return nil, err
			}
		}
		r.CpusetCpus = set.String()
		within, cancel := context.WithTimeout(ctx, moveWithin)
		err := m.conf.Runtime.UpdateContainerResources(within, id, r)
		cancel()
		if err != nil {
			return nil, fmt.Errorf("container %s can't get the CPUs %s: %w", c.Name, set, err)
		}
		m.mu.Lock()
		m.created[of] = set
		m.mu.Unlock()
	}
}

// started ends the start of an instance: from now on it can be moved.
func (m *Manager) started(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.instances[id]; i != nil {
		i.starting, i.stale = false, true
		if !i.has.Equals(m.wanted(i.uid, i.name)) {
			m.shrunk.Wake()
		} else {
			m.grown.Wake()
		}
	}
}
