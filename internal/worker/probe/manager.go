package probe

import (
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// never is a deadline that is never reached.
const never = time.Duration(math.MaxInt64)

// Manager runs the requested probes. Its methods are safe for concurrent use, before, during and after Run. Only Run
// blocks.
type Manager struct {
	opts Options
	// born is when the manager was created. Internal times are durations since then: they are monotonic, so that
	// changes of the clock move no deadline.
	born time.Time
	// kick wakes the scheduler before its timer.
	kick wake.Slot
	// workers waits for the goroutines that carry out tries.
	workers sync.WaitGroup

	mu   sync.Mutex
	pods map[types.UID]*subject
	// late has entries that aren't requested any more but have a try under way.
	late map[lateKey]*entry
	due  timeline[*entry]
	// armed is the time at which the scheduler's timer fires.
	armed time.Duration
	// network limits the http, tcp and grpc tries, exec the exec tries.
	network, exec limiter
	// idle has the workers without work, the longest idle one first.
	idle    []*worker
	stopped bool
}

// lateKey identifies a probe of a container instance among those of all pods.
type lateKey struct {
	uid   types.UID
	probe pod.Probe
}

// New returns a manager; Run starts it. Containers that started before this call count as adopted from an earlier
// agent.
func New(o Options) *Manager {
	o = o.withDefaults()
	return &Manager{
		opts:    o,
		born:    time.Now(),
		kick:    wake.NewSlot(),
		pods:    map[types.UID]*subject{},
		late:    map[lateKey]*entry{},
		armed:   never,
		network: newLimiter(o.MaxParallel),
		exec:    newLimiter(o.MaxExec),
	}
}

// Results returns the results of a pod's requested probes; nil if there are none yet. The slice must not be changed.
func (m *Manager) Results(uid types.UID) []pod.ProbeResult {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.pods[uid]; s != nil {
		return s.current()
	}
	return nil
}

// Failures returns the recent failures of a pod's requested probes; nil if none fails. It is for users: changes wake
// no pod.
func (m *Manager) Failures(uid types.UID) (list []pod.ProbeFailures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.pods[uid]; s != nil {
		for _, e := range s.entries {
			if e.failures != nil {
				list = append(list, *e.failures)
			}
		}
	}
	return list
}

// Forget ends all probes of a pod that has ended.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.pods[uid]
	if s == nil {
		return
	}
	delete(m.pods, uid)
	for _, e := range s.entries {
		m.drop(e)
	}
	for _, list := range [...][]v1.Container{s.pod.Spec.InitContainers, s.pod.Spec.Containers} {
		for i := range list {
			for _, kind := range [...]pod.ProbeKind{pod.ProbeStartup, pod.ProbeLiveness, pod.ProbeReadiness} {
				if specOf(&list[i], kind) != nil {
					m.opts.Meter.Dropped(s.pod, list[i].Name, kind)
				}
			}
		}
	}
}

// await schedules the next try of a probe for due.
func (m *Manager) await(e *entry, due time.Duration) {
	e.due, e.phase = due, waiting
	m.due.add(due, e)
	m.lookBy(due)
}

// lookBy makes sure that the scheduler runs at t at the latest.
func (m *Manager) lookBy(t time.Duration) {
	if t < m.armed {
		m.kick.Wake()
	}
}

// now is the manager's internal time.
func (m *Manager) now() time.Duration { return time.Since(m.born) }
