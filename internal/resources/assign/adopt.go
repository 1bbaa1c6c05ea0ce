package assign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
	"github.com/deckhand-node/deckhand/internal/resources/assign/state"
)

// file is the name of the kubelet's file in the root directory. The agent reads the file of a kubelet, and a kubelet
// that takes over reads the agent's.
const file = "cpu_manager_state"

// maxFile bounds the file's size: 1,000 pods take 100 kB.
const maxFile = 16 << 20

// The names of policies in the file.
const (
	policyNone   = "none"
	policyStatic = "static"
)

// Difference is a difference between the recorded assignment of CPUs and the actual one.
type Difference struct {
	// Kind is "damaged", "policy", "recorded", "request", "gone" or "shared".
	Kind string `json:"kind"`
	// Message names the difference and its consequence.
	Message string `json:"message"`
}

// Restore reads the assignments of an earlier agent or kubelet. A file that can't be used is set aside: running
// containers keep their CPUs all the same. If it can't be read now, Run tries again.
func (m *Manager) Restore() error {
	path := filepath.Join(m.conf.Dir, file)
	checkpoint.Sweep(path)
	return m.restore(path, false)
}

// restore reads the file. Unless it is the last try, a file that can't be read for a reason of this moment stays.
func (m *Manager) restore(path string, last bool) error {
	text, err := safeopen.ReadRegular(path, maxFile)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unrestored = false
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case last:
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.EIO),
		errors.Is(err, unix.ENOMEM):
		m.unrestored = true // the file may be good
		return fmt.Errorf("read which CPUs containers have to themselves: %w", err)
	}
	var was *state.CPUs
	if err == nil {
		was, err = state.DecodeCPUs(text)
	}
	if err != nil {
		aside, renaming := checkpoint.SetAside(path)
		m.differ("damaged", "%s can't be used (%v); it was renamed to %s", path, err, aside)
		m.undoes = !m.conf.Static
		if renaming != nil {
			return fmt.Errorf("set a damaged file aside: %w", renaming)
		}
		return nil
	}
	m.undoes = !m.conf.Static && was.Policy != policyNone
	if was.Policy == policyNone == m.conf.Static {
		m.differ("policy", "the policy was %s", was.Policy)
	}
	if was.Policy == policyNone || !m.conf.Static {
		return nil
	}
	m.byID = was.ByID
	for uid, set := range was.Pods {
		m.pods[types.UID(uid)] = set
	}
	for uid, of := range was.Of {
		maps.DeleteFunc(of, func(_ string, set cpuset.CPUSet) bool { return set.IsEmpty() })
		m.set(types.UID(uid), of)
	}
	return nil
}

// differ records a difference. The caller holds the mutex.
func (m *Manager) differ(kind, format string, args ...any) {
	d := Difference{kind, fmt.Sprintf(format, args...)}
	if slices.Contains(m.differences, d) {
		return
	}
	m.conf.Log.Info("CPUs that containers have to themselves differ from the record", "reason", d.Kind,
		"message", d.Message)
	m.conf.Meter.Replanned(kind)
	m.conf.Events.NodeEvent(v1.EventTypeNormal, pod.ReasonResourceStateReplanned, file+": "+d.Message)
	if len(m.differences) < maxDifferences {
		m.differences = append(m.differences, d)
	}
}

// maxDifferences bounds what is kept.
const maxDifferences = 1000

// Differences returns the differences that this agent has found.
func (m *Manager) Differences() []Difference {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.differences)
}

// adopt finds out which CPUs running containers have to themselves, and records that. The cgroups of running containers
// count more than the file, and the file more than a new choice. It returns false if the machine's or a container's
// CPUs, or the file, can't be read now. In the last try, it goes on without those of containers and the file.
func (m *Manager) adopt(ctx context.Context, last bool) bool {
	m.mu.Lock()
	again := m.unrestored
	m.mu.Unlock()
	if path := filepath.Join(m.conf.Dir, file); again {
		if err := m.restore(path, last); err != nil && !last {
			return false
		}
	}
	if !m.follow(ctx) && !last {
		return false
	}
	now, err := m.conf.Machine()
	m.mu.Lock()
	if err == nil {
		m.onMachine(now)
	}
	switch {
	case err != nil:
	case !m.conf.Static:
		for _, i := range m.instances {
			i.behind = !i.foreign // an earlier agent may have been killed between setting the CPUs and the limit
		}
	default:
		for id, set := range m.byID {
			if i := m.instances[id]; i != nil && !set.IsEmpty() {
				m.give(i.owner, set)
			}
		}
		m.settle()
	}
	m.mu.Unlock()
	if err != nil {
		m.conf.Log.Error(err, "Can't find out which CPUs this machine has; trying again")
		return false
	}
	if m.conf.Static {
		m.record()
	}
	return true
}

// give assigns CPUs to a container. The caller holds the mutex.
func (m *Manager) give(of owner, set cpuset.CPUSet) {
	if m.of[of.uid] == nil {
		m.of[of.uid] = map[string]cpuset.CPUSet{}
	}
	m.of[of.uid][of.name] = set
}

// settle makes the assignments valid for this machine and its running containers. It may be called again. The caller
// holds the mutex.
func (m *Manager) settle() {
	s := settling{Manager: m, running: map[owner]*instance{}, done: map[owner]bool{}}
	for _, i := range m.instances {
		s.running[i.owner] = i
	}
	s.keepPods()
	s.keepRunning()
	s.keepRecorded()
	s.pinRunning()
}

// settling is one run of settle.
type settling struct {
	*Manager
	running map[owner]*instance
	// done are the containers whose CPUs are settled, used their CPUs.
	done map[owner]bool
	used cpuset.CPUSet
}

func (s *settling) claim(of owner, set cpuset.CPUSet) {
	s.give(of, set)
	s.done[of] = true
	s.used = s.used.Union(set)
}

// owners returns the containers that run, in a stable order.
func (s *settling) owners() []owner { return slices.SortedFunc(maps.Keys(s.running), owner.compare) }

// wants returns how many CPUs a container should have to itself: as many as are recorded, or as its pod requests.
func (s *settling) wants(of owner) int {
	if set, ok := s.of[of.uid][of.name]; ok {
		return set.Size()
	}
	for _, a := range asks(s.conf.Pod(of.uid)) {
		if a.container == of.name {
			return a.count
		}
	}
	return 0
}

// keepPods settles the CPUs of pods as a whole: a pod keeps those on which its containers run, except CPUs of others.
func (s *settling) keepPods() {
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		on, others := cpuset.New(), s.reserved
		for of, i := range s.running {
			if of.uid == uid {
				on = on.Union(i.has)
			}
		}
		for other, of := range s.of {
			for _, set := range of {
				if other != uid {
					others = others.Union(set)
				}
			}
		}
		for other, set := range s.pods {
			if other < uid {
				others = others.Union(set)
			}
		}
		left := s.pods[uid].Intersection(s.machine.Online()).Difference(others)
		if !on.IsEmpty() {
			left = left.Intersection(on)
		}
		if s.pods[uid] = left; left.IsEmpty() || !s.conf.Known(uid) {
			delete(s.pods, uid)
		}
	}
}

// keepRunning settles running containers whose CPUs no other container uses: they keep these.
func (s *settling) keepRunning() {
	online := s.machine.Online()
	for _, of := range s.owners() {
		i, count := s.running[of], s.wants(of)
		if count == 0 || i.unread || i.has.Size() != count || !i.has.IsSubsetOf(online) || i.has.Equals(online) ||
			s.sharing(of, i.has) != nil || !i.has.Intersection(s.used).IsEmpty() {
			continue
		}
		if before := s.of[of.uid][of.name]; !before.Equals(i.has) {
			s.differ("recorded", "container %s of pod %s runs on the CPUs %s, recorded were %s: it keeps them", of.name,
				i.pod, i.has, listed(before))
		}
		s.claim(of, i.has)
	}
}

// keepRecorded settles other recorded assignments: they stay as far as they are possible today.
func (s *settling) keepRecorded() {
	online := s.machine.Online()
	for _, uid := range slices.Sorted(maps.Keys(s.of)) {
		done := map[string]cpuset.CPUSet{}
		for name, set := range s.of[uid] {
			if s.done[owner{uid, name}] {
				done[name] = set
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.of[uid])) {
			of, set := owner{uid, name}, s.of[uid][name]
			if s.done[of] {
				continue
			}
			siblings := s.siblings(of, done)
			delete(s.of[uid], name)
			i := s.running[of]
			if i == nil && s.conf.Pod(uid) != nil && s.wants(of) != set.Size() {
				s.differ("request", "container %s of pod %s had the CPUs %s, and wants %d", name, uid, set, s.wants(of))
				continue
			}
			usable := online
			if i == nil {
				usable = online.Difference(s.reserved)
			}
			left := set.Intersection(usable).Difference(s.used.Difference(siblings))
			switch {
			case left.Equals(set):
			case i == nil:
				s.differ("gone", "container %s of pod %s had the CPUs %s: %s can't be used any more", name, uid, set,
					set.Difference(left))
				continue
			default:
				missing := cpu.Ask{Count: set.Size() - left.Size()}
				more, _ := s.conf.Choose(&s.machine, s.free().Difference(left), missing)
				s.differ("gone", "container %s of pod %s had the CPUs %s: instead of %s it gets %s", name, i.pod, set,
					set.Difference(left), listed(more))
				if left = left.Union(more); left.IsEmpty() {
					continue
				}
			}
			s.claim(of, left)
			done[name] = left
		}
		s.set(uid, s.of[uid])
	}
}

// siblings returns the CPUs of containers of the same pod that a container may use again. As long as no
// source has the pod, it may use those of all.
func (s *settling) siblings(of owner, done map[string]cpuset.CPUSet) cpuset.CPUSet {
	list := asks(s.conf.Pod(of.uid))
	if n := slices.IndexFunc(list, func(a ask) bool { return a.container == of.name }); n >= 0 {
		return reusable(done, list, n)
	}
	all := cpuset.New()
	for _, set := range done {
		all = all.Union(set)
	}
	return all
}

// pinRunning settles other running containers that should have CPUs to themselves: they get free ones.
func (s *settling) pinRunning() {
	for _, of := range s.owners() {
		count := s.wants(of)
		if s.done[of] || count == 0 {
			continue
		}
		set, ok := s.conf.Choose(&s.machine, s.free(), cpu.Ask{Count: count})
		if !ok {
			s.differ("shared", "container %s of pod %s shares CPUs until it is started again: it wants %s, free are %s",
				of.name, s.running[of].pod, plural(count), listed(s.free()))
			continue
		}
		s.differ("policy", "container %s of pod %s gets the CPUs %s to itself", of.name, s.running[of].pod, set)
		s.claim(of, set)
	}
}

func (o owner) compare(p owner) int {
	return cmp.Or(cmp.Compare(o.uid, p.uid), cmp.Compare(o.name, p.name))
}

// save records the assignments, in the kubelet's form. After it returned nil, the file survives a power loss.
func (m *Manager) save() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	m.mu.Lock()
	m.count()
	c := state.CPUManagerCheckpoint{PolicyName: policyNone, Entries: map[string]map[string]string{}}
	if m.conf.Static {
		c.PolicyName, c.DefaultCPUSet = policyStatic, m.shared().String()
		for uid, of := range m.of {
			c.Entries[string(uid)] = map[string]string{}
			for name, set := range of {
				c.Entries[string(uid)][name] = set.String()
			}
		}
	}
	pods := map[string]string{}
	for uid, set := range m.pods {
		pods[string(uid)] = set.String()
	}
	m.mu.Unlock()
	return m.write(&c, pods)
}

func (m *Manager) write(c *state.CPUManagerCheckpoint, pods map[string]string) error {
	text, err := c.EncodeWith(pods)
	if err != nil {
		return fmt.Errorf("record which CPUs containers have to themselves: %w", err)
	}
	path := filepath.Join(m.conf.Dir, file)
	defer m.conf.Writes.Track(path)()
	if err := atomicfile.Write(path, text, 0o600); err != nil {
		return fmt.Errorf("record which CPUs containers have to themselves: %w", err)
	}
	return nil
}
