package pressure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/host/alarm"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Config configures a Manager. Every field but Reserve is required.
type Config struct {
	// Settings are the settings at the start; SetSettings changes them.
	Settings Settings
	// Observe reads the resources. The error names the signals that can't be read; the Observation has the others.
	Observe func(context.Context, []Threshold) (Observation, error)
	// Processes reads the signal Processes alone, which costs little.
	Processes func() (Reading, error)
	// Alarm reports that memory may run short.
	Alarm interface {
		Woken() <-chan struct{}
		Drain() []string
		Set([]alarm.Trigger) (failed map[string]error)
	}
	// Pods lists the pods of the node with the figures that are needed. An error means that pods or measurements are
	// missing.
	Pods func(context.Context, Needs) ([]Pod, error)
	// Recorded reports whether the pod's own record says that it has to end. Restore calls it.
	Recorded func(types.UID) bool
	// Holding reports whether the pod still has containers or volumes. Version returns Pod.Version of the pod that has
	// this UID now.
	Holding func(types.UID) bool
	Version func(types.UID) string
	// Reclaim frees disk space, and returns when it has finished.
	Reclaim func(context.Context, Reclaim) error
	// Publish publishes the conditions of the node.
	Publish func(admission.Pressure)
	Events  interface {
		NodeEvent(eventType string, reason pod.Reason, message string)
	}
	Meter interface {
		Evicted(signal string)
		// Decided records the age of the figures on which a decision for a signal was based.
		Decided(signal string, age time.Duration)
	}
	// Full is filled after a write failed because a disk is full. The node is then observed at once, unless its
	// condition DiskPressure is true already.
	Full <-chan struct{}
	// Wake is called when a pod has to end. It must not block.
	Wake func(types.UID)
	// State is the path of the state file, Boot the ID of this boot.
	State, Boot string
	// Reserve is a reserve of disk space, which is released if the disk is too full for the state file while a pod is
	// being ended; it may be nil.
	Reserve *room.Reserve
	// Now returns the time since the machine was booted.
	Now func() time.Duration
	Log logr.Logger
}

const (
	// announceEvery is the shortest time between two events about one signal, which report that something is reclaimed
	// or that no pod may be evicted.
	announceEvery = time.Minute
	// alarmGap is the shortest time between two observations that alarms cause while a condition is true. quietGap is
	// the same while none is true, and for observations that failed writes cause. They are needed because a container
	// at its own limit causes alarms all the time.
	alarmGap, quietGap = 250 * time.Millisecond, time.Second
	// saveEvery is the maximum age of the state file while a condition is true.
	saveEvery = whilePressed
)

// Manager relieves the node when it is under pressure. Run may be called once; the other methods are safe for
// concurrent use.
type Manager struct {
	Config
	wake     wake.Slot
	settings atomic.Pointer[Settings]
	// ending says that the Manager waits for the end of a pod.
	ending atomic.Bool

	mu           sync.Mutex
	terminations map[types.UID]*pod.PodTermination
	status       Status
	// observed and woken are the times of the last observation and of the last alarm.
	observed, woken time.Duration
	// ranks are the ranks of the pods that would be ended after the pod whose end is awaited.
	ranks      map[types.UID]*Rank
	transcript transcript

	// Only Run uses the following fields. count is Act.Count of the last decision, or of the last count.
	memory  Memory
	count   time.Duration
	saved   Memory
	savedAt time.Duration
	noPodAt time.Duration
	// alarmed is when an alarm last caused an observation, failed when a failed write did. announced is when an event
	// about each signal was last recorded.
	alarmed, failed time.Duration
	announced       map[Signal]time.Duration

	unread, excess, unmeasured, unsaved, reclaims logging.LastError
}

// Status is the state of the signals, for users.
type Status struct {
	Pressure admission.Pressure
	Signals  []SignalStatus
	// Unread says which signals can't be read, and why; nil if all can.
	Unread error
	// Observed says that the signals have been read; Age is the time since then. Before that, nothing is decided.
	Observed bool
	Age      time.Duration
	// Woken describes the kernel's last alarms, and Quiet is the time since then. Woken is empty if there was no alarm.
	Woken string
	Quiet time.Duration
}

// SignalStatus is the state of one threshold.
type SignalStatus struct {
	Threshold Threshold
	// Reading is the last reading; Readable is false if there was none.
	Reading  Reading
	Readable bool
	// Least is the threshold in absolute terms, for the capacity that was read.
	Least int64
	// Met says that the threshold is met, and For how long it has been met. Left is the rest of its grace period.
	Met       bool
	For, Left time.Duration

	since time.Duration
}

// New returns a Manager. It does nothing before Run.
func New(c Config) *Manager {
	m := &Manager{Config: c, wake: wake.NewSlot(), count: -1, terminations: map[types.UID]*pod.PodTermination{},
		announced: map[Signal]time.Duration{}}
	m.settings.Store(&c.Settings)
	return m
}

// SetSettings changes the settings from the next decision on, which follows at once.
func (m *Manager) SetSettings(s Settings) {
	m.settings.Store(&s)
	m.wake.Wake()
}

// PodsChanged is called after the runtime's state of pods has changed.
func (m *Manager) PodsChanged() {
	if m.ending.Load() {
		m.wake.Wake()
	}
}

// Termination returns the eviction of a pod, or nil. Once set, it doesn't change.
func (m *Manager) Termination(uid types.UID) *pod.PodTermination {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.terminations[uid]
}

// Forget deletes the eviction of a pod that is gone.
func (m *Manager) Forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.terminations, uid)
}

// Status returns the state as of the last observation.
func (m *Manager) Status() Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, now := m.status, m.Now()
	s.Age, s.Quiet, s.Signals = now-m.observed, now-m.woken, slices.Clone(s.Signals)
	for i := range s.Signals {
		if l := &s.Signals[i]; l.Met {
			l.For = now - l.since
			l.Left = max(l.Threshold.Grace-l.For, 0)
		}
	}
	return s
}

// Rank returns the place of a pod in the order in which pods would be ended, according to the last decision. It is nil
// while no pod has to be ended, for a pod that may not be ended, and for a pod that is ending already.
func (m *Manager) Rank(uid types.UID) *Rank {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ranks[uid]
}

// Restore reads the state file and publishes the conditions that are true. It is called once, before Run.
func (m *Manager) Restore(context.Context) error {
	memory, err := load(m.State, m.Boot, m.Now())
	if err != nil {
		return err
	}
	if memory.Ending != "" && !m.Recorded(types.UID(memory.Ending)) {
		memory.forgetEnding(m.Now()) // its worker hadn't read the eviction when the last agent ended
	}
	m.memory = memory
	var p admission.Pressure
	for _, k := range kinds() {
		if last, pressed := memory.Pressed[k.condition]; pressed && last > m.Now()-m.settings.Load().Transition {
			*k.pressure(&p) = true
		}
	}
	m.Publish(p)
	return nil
}

// Run observes, decides and acts until ctx ends. Without thresholds it sleeps. The error is nil.
func (m *Manager) Run(ctx context.Context) error {
	for {
		next := m.step(ctx)
		if !m.await(ctx, next) {
			return nil
		}
	}
}

// await waits until an observation is due: at the time next since boot (negative means never), or after a wake-up, a
// failed write or an alarm. It returns false if ctx ended.
func (m *Manager) await(ctx context.Context, next time.Duration) bool {
	var due <-chan time.Time
	if next >= 0 {
		due = time.After(next - m.Now())
	}
	pressure, full := m.Status().Pressure, m.Full
	if pressure.Disk {
		full = nil // the disk is observed periodically anyway, and each observation may measure the pods' disk usage
	}
	var count <-chan time.Time
	if m.count >= 0 {
		count = time.After(m.count - m.Now())
	}
	select {
	case <-ctx.Done():
		return false
	case <-m.wake:
	case <-due:
	case <-count:
		if m.countProcesses() {
			return m.await(ctx, next)
		}
	case <-full:
		m.failed = m.pause(ctx, due, m.failed+quietGap)
	case <-m.Alarm.Woken():
		gap := quietGap
		if pressure != (admission.Pressure{}) {
			gap = alarmGap
		}
		m.alarmed = m.pause(ctx, due, m.alarmed+gap)
		select {
		case <-m.Alarm.Woken(): // the channel may have been filled again during the pause
		default:
		}
		m.note(m.Alarm.Drain())
	}
	return ctx.Err() == nil
}

// countProcesses counts the processes between two observations, and sets the time of the next count. It returns false
// if an observation is needed instead.
func (m *Manager) countProcesses() bool {
	r, err := m.Processes()
	if err != nil || r.Capacity <= 0 {
		return false
	}
	now := m.Now()
	m.count = m.memory.counted(*m.settings.Load(), r, now)
	return m.count > now
}

// pause waits until the time until since boot, or until an observation is due for another reason. It returns the time
// at its end.
func (m *Manager) pause(ctx context.Context, due <-chan time.Time, until time.Duration) time.Duration {
	select {
	case <-ctx.Done():
	case <-m.wake:
	case <-due:
	case <-time.After(until - m.Now()):
	}
	return m.Now()
}

// note stores the alarms for Status.
func (m *Manager) note(alarms []string) {
	slices.Sort(alarms)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status.Woken, m.woken = strings.Join(alarms, "; "), m.Now()
}

// step observes, decides and acts once. It returns when the next step is due.
func (m *Manager) step(ctx context.Context) time.Duration {
	s := *m.settings.Load()
	o, err := m.observe(ctx, s)
	if ctx.Err() != nil {
		return -1
	}
	if err != nil {
		m.unread.Log(m.Log, err, "Some resources of the node can't be read: nothing is done if they run short")
	} else {
		m.unread.Clear()
	}
	if err := excessive(s, o); err != nil {
		m.excess.Log(m.Log, err, "The node is under pressure whatever ends: correct the threshold")
	} else {
		m.excess.Clear()
	}
	now := m.Now()
	var pods []Pod
	next, act := Decide(s, m.memory, o, nil, now)
	for listed := true; listed && act.Needs != (Needs{}); { // each time more of them
		// Measuring takes a while, so the pod is chosen with a new observation that is later than the figures of pods.
		var err error
		needs := act.Needs
		pods, err = m.list(ctx, needs)
		if ctx.Err() != nil {
			return -1
		}
		if err != nil {
			m.unmeasured.Log(m.Log, err, "The pods' usage can't be measured: no pod is evicted")
			pods, listed = nil, false
		} else {
			m.unmeasured.Clear()
			if o, _ = m.observe(ctx, s); ctx.Err() != nil {
				return -1
			}
			o.Unmeasured = allFigures().without(needs)
		}
		now = m.Now()
		next, act = Decide(s, m.memory, o, pods, now)
	}
	m.record(s, o, pods, now, act)
	if act.Needs != (Needs{}) { // the pods couldn't be measured
		act.Observe = now + whileEnding
	}
	m.memory, m.count = next, act.Count
	m.ending.Store(next.Ending != "")
	m.show(s, Status{Pressure: act.Pressure, Unread: err, Observed: true}, o, act)
	m.Publish(act.Pressure)
	m.save(now)
	return m.act(ctx, act, now)
}

// record stores a decision for Transcript.
func (m *Manager) record(s Settings, o Observation, pods []Pod, now time.Duration, act Act) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.transcript.add(time.Now(), s, m.memory, o, pods, now, act); err != nil {
		m.Log.Error(err, "A decision about evictions isn't recorded")
	}
}

// Transcript returns the latest decisions with their inputs, as lines of JSON: each is a Step.
func (m *Manager) Transcript() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.transcript.text()
}

// excessive returns an error about a threshold that is at or above the capacity, so that it is always met; nil if there
// is none.
func excessive(s Settings, o Observation) error {
	for _, t := range s.Thresholds {
		if r := o.Readings[t.Signal]; r.Capacity > 0 && t.Least.Of(r.Capacity) >= r.Capacity {
			return fmt.Errorf("the eviction threshold of %s is %v, but there are only %d in all", t.Signal, t.Least,
				r.Capacity)
		}
	}
	return nil
}

// list lists the pods, and marks those that were evicted before as ending.
func (m *Manager) list(ctx context.Context, needs Needs) ([]Pod, error) {
	pods, err := m.Pods(ctx, needs)
	for i := range pods {
		pods[i].Ending = pods[i].Ending || m.Termination(types.UID(pods[i].UID)) != nil
	}
	if pods == nil {
		pods = []Pod{}
	}
	return pods, err
}

func (m *Manager) observe(ctx context.Context, s Settings) (o Observation, err error) {
	if len(s.Thresholds) == 0 {
		m.Alarm.Set(nil)
		o.At = m.Now()
	} else {
		o, err = m.Observe(ctx, s.Thresholds)
	}
	o.Holding = m.memory.Ending != "" && m.Holding(types.UID(m.memory.Ending))
	return o, err
}

// act carries a decision out, and returns when the next step is due.
func (m *Manager) act(ctx context.Context, act Act, now time.Duration) time.Duration {
	if act.For == nil {
		return act.Observe
	}
	resource := string(kindOf(act.For.Signal).resource)
	m.Meter.Decided(string(act.For.Signal), now-m.memory.At)
	last, ok := m.announced[act.For.Signal]
	if (act.Reclaim != "" || act.Victim != nil) && (!ok || now-last >= announceEvery) {
		m.announced[act.For.Signal] = now
		m.Events.NodeEvent(v1.EventTypeWarning, pod.ReasonEvictionThresholdMet, "Attempting to reclaim "+resource)
	}
	switch {
	case act.Reclaim != "":
		m.Log.Info("The node runs short of a resource: something unused is removed", "signal", act.For.Signal,
			"action", act.Reclaim)
		if err := m.Reclaim(ctx, act.Reclaim); err != nil && ctx.Err() == nil {
			m.reclaims.Log(m.Log, err, "Not everything unused could be removed", "signal", act.For.Signal,
				"action", act.Reclaim)
		} else {
			m.reclaims.Clear()
		}
		m.memory.FreshAfter = m.Now()
		return m.memory.FreshAfter
	case act.Victim != nil:
		m.end(act)
	case act.NoneFit && (m.noPodAt == 0 || now-m.noPodAt >= announceEvery):
		m.noPodAt = now
		most := ""
		if act.Most != "" {
			most = ", most is used by pod " + act.Most
		}
		m.Events.NodeEvent(v1.EventTypeWarning, pod.ReasonEvictionFindsNoPod, fmt.Sprintf(
			"The node is low on %s (%s), and no pod that may be evicted uses enough of it%s: free some of it yourself",
			resource, act.For.Signal, most))
	}
	return act.Observe
}

// end records the eviction of a pod and wakes its worker.
func (m *Manager) end(act Act) {
	v, uid := act.Victim, types.UID(act.Victim.UID)
	if m.Version(uid) != v.Version {
		return // the pod was replaced while its usage was measured: the old one is gone, and another decision follows
	}
	m.Log.Info("The node runs short of a resource: a pod is evicted", "pod", klog.KRef(v.Namespace, v.Name),
		"podUID", uid, "signal", act.For.Signal, "message", v.Message)
	m.mu.Lock()
	if m.terminations[uid] == nil {
		m.terminations[uid] = &pod.PodTermination{At: time.Now(), Grace: &v.Grace, Reason: pod.ReasonEvicted,
			Message: v.Message, Disruption: true, Annotations: v.Annotations}
	}
	m.mu.Unlock()
	m.Meter.Evicted(string(act.For.Signal))
	m.Wake(uid)
}

// show stores the state for Status and Rank.
func (m *Manager) show(s Settings, shown Status, o Observation, act Act) {
	for _, t := range s.Thresholds {
		r, readable := o.Readings[t.Signal]
		line := SignalStatus{Threshold: t, Reading: r, Readable: readable, Least: t.Least.Of(r.Capacity)}
		if since, met := m.memory.Met[t.id()]; met {
			line.Met, line.since = true, since
		}
		shown.Signals = append(shown.Signals, line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	shown.Woken = m.status.Woken
	m.status, m.observed = shown, o.At
	switch {
	case act.Victim != nil:
		m.ranks = ranks(act, o.Layout)
	case m.memory.Ending == "":
		m.ranks = nil
	}
}

// save writes the state file if conditions, met thresholds or the ending pod have changed, or if the file is too old.
func (m *Manager) save(now time.Duration) {
	same := sameKeys(m.memory.Met, m.saved.Met) && sameKeys(m.memory.Pressed, m.saved.Pressed) &&
		m.memory.Ending == m.saved.Ending
	if same && (len(m.memory.Pressed) == 0 || now-m.savedAt < saveEvery) {
		return
	}
	ends := m.memory.Ending != "" && m.memory.Ending != m.saved.Ending
	m.saved, m.savedAt = m.memory, now
	write := func() error { return save(m.State, m.Boot, m.memory) }
	var err error
	if ends {
		err = m.Reserve.Spend(write)
	} else {
		err = write()
	}
	if err != nil {
		m.unsaved.Log(m.Log, err, "The state of node pressure can't be saved: a restart of the agent would lose how "+
			"long thresholds are met")
	} else {
		m.unsaved.Clear()
	}
}

func sameKeys[K comparable, V any](a, b map[K]V) bool {
	return maps.EqualFunc(a, b, func(V, V) bool { return true })
}
