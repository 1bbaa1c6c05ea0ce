package pressure

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Reading is the available amount of a signal's resource, and the total amount.
type Reading struct{ Available, Capacity int64 }

// Observation is the state of the node's resources. Times are since the machine was booted, so that a step of the clock
// doesn't change them.
type Observation struct {
	// At is when reading began.
	At time.Duration
	// Readings are the signals that could be read.
	Readings map[Signal]Reading
	// Absent are the signals that this node doesn't have now: a file system doesn't count inodes, or all pods together
	// have no memory limit.
	Absent []Signal
	Layout Layout
	// Unmeasured are the figures that aren't in the list of pods, because the pods were listed for another signal.
	Unmeasured Needs
	// Holding says that the pod Memory.Ending still has containers or volumes.
	Holding bool
}

// Memory is the state that is kept between decisions. It is saved, so that a restarted agent continues where the
// previous one ended. It isn't used after a reboot.
type Memory struct {
	// Met maps thresholds (Threshold.id) to the time since which they have been met in every observation.
	Met map[string]time.Duration `json:"met,omitempty"`
	// Pressed maps each condition that is true to the time when one of its thresholds was last met.
	Pressed map[v1.NodeConditionType]time.Duration `json:"pressed,omitempty"`
	// Reclaimed is how many reclaims were started for a signal since the last pod was ended for it. ReclaimedAt is when
	// the last of them was started.
	Reclaimed   map[Signal]int           `json:"reclaimed,omitempty"`
	ReclaimedAt map[Signal]time.Duration `json:"reclaimedAt,omitempty"`
	// FreshAfter is a time after the last act: an observation that began before it doesn't show the effect of that act.
	FreshAfter time.Duration `json:"freshAfter,omitempty"`
	// Ending is the UID of the pod that was ended last. It is empty once nothing of the pod is left, or the time Until
	// has passed. Soft says that the pod was ended for a soft threshold.
	Ending string        `json:"ending,omitempty"`
	Until  time.Duration `json:"until,omitempty"`
	Soft   bool          `json:"soft,omitempty"`
	// At is when the last observation began.
	At time.Duration `json:"at,omitempty"`
	// Fill is, for each signal, the fastest recent rate per second at which its resource was used up, and Read its last
	// reading.
	Fill map[Signal]float64 `json:"-"`
	Read map[Signal]Reading `json:"-"`
}

func (m Memory) clone() Memory {
	m.Met, m.Pressed = cloned(m.Met), cloned(m.Pressed)
	m.Reclaimed, m.ReclaimedAt = cloned(m.Reclaimed), cloned(m.ReclaimedAt)
	m.Fill, m.Read = cloned(m.Fill), cloned(m.Read)
	return m
}

func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// Act is the result of a decision: the action to take. At most one of Reclaim, Victim and Needs is set.
type Act struct {
	// Pressure are the node's conditions.
	Pressure admission.Pressure
	// For is the threshold because of which the action is taken, and Reading its reading. They are also set if no pod
	// may be ended.
	For     *Threshold
	Reading Reading
	Reclaim Reclaim
	// Victim is the pod to end, with its grace period and the texts for its status and event.
	Victim *Victim
	// Next are the pods that would be ended after the victim, in this order.
	Next []*Pod
	// Needs are the figures of pods that have to be measured before a pod can be chosen.
	Needs Needs
	// NoneFit says that ending a pod wouldn't help: all pods that use enough of the resource are critical. Most names
	// the pod that uses most of it, with the amount; empty if that isn't available.
	NoneFit bool
	Most    string
	// Observe is when the next observation is needed if there is no alarm before: at once if the time isn't later than
	// now. Negative means never.
	Observe time.Duration
	// Count is when the processes have to be counted if there is no observation before; negative means never.
	Count time.Duration
}

const (
	// soonest and latest are the limits of the time between two observations while no threshold is met.
	soonest, latest = time.Second, time.Minute
	// whilePressed is the time between two observations while a condition is true. It is the kubelet's period.
	whilePressed = 10 * time.Second
	// unreadAgain is the time until a resource that couldn't be read is read again: when the agent starts, the runtime
	// may still be starting.
	unreadAgain = 10 * time.Second
	// endPatience is how long the end of a pod may take beyond its grace period before another one is chosen.
	endPatience = 30 * time.Second
	// whileEnding is the time between two observations while a pod ends, if nothing reports its end.
	whileEnding = time.Second
	// longest is the longest time that the end of a pod is awaited.
	longest = 24 * time.Hour
	// reclaimEvery is the shortest time between two reclaims for a signal if no pod was ended after the first one.
	reclaimEvery = time.Minute
	// unseen is the longest time between two observations for which thresholds count as met without interruption. After
	// a longer time, because the machine was suspended or there was no agent, they count as met from the second
	// observation on.
	unseen = 2 * latest
	// leastPart is the divisor of the missing amount that gives the least use of a pod that is ended: to end a pod that
	// uses less wouldn't help.
	leastPart = 100
)

// Decide decides on the action to take after an observation. pods are all pods of the node, with the figures that an
// earlier decision needed; nil if it needed none. now is the time since boot. Decide doesn't change its arguments.
func Decide(s Settings, m Memory, o Observation, pods []Pod, now time.Duration) (Memory, Act) {
	d := decision{Settings: s, m: m.clone(), o: o, now: now, kinds: kinds(), act: Act{Count: -1}}
	d.see()
	d.act.Observe = d.nextObservation()
	d.awaitEnd()
	if o.At < d.m.FreshAfter {
		d.act.Observe = now
		return d.m, d.act
	}
	d.choose(pods)
	return d.m, d.act
}

// decision is the state of one call of Decide.
type decision struct {
	Settings
	m     Memory
	o     Observation
	now   time.Duration
	kinds []kind
	act   Act
	// awaits says that the pod that was ended last hasn't ended yet.
	awaits bool
}

// see processes the observation: it updates the times since which thresholds have been met, the conditions and the
// rates.
func (d *decision) see() {
	if d.o.At-d.m.At > unseen {
		clear(d.m.Met)
	}
	met := map[string]time.Duration{}
	for _, k := range d.kinds {
		r, readable := d.o.Readings[k.signal]
		if !readable || r.Capacity <= 0 { // a file system that reports no size can't run short
			continue
		}
		d.note(k.signal, r)
		any := false
		for _, t := range d.Thresholds {
			if t.Signal != k.signal {
				continue
			}
			id := t.id()
			since, was := d.m.Met[id]
			if !t.met(r, was) {
				continue
			}
			any = true
			if !was {
				since = d.o.At
			}
			met[id] = since
		}
		if any {
			d.m.Pressed[k.condition] = max(d.m.Pressed[k.condition], d.o.At)
		} else {
			delete(d.m.Reclaimed, k.signal)
		}
	}
	d.m.Met = met
	for _, k := range d.kinds {
		if last, ok := d.m.Pressed[k.condition]; ok && last > d.now-d.Transition {
			*k.pressure(&d.act.Pressure) = true
		} else {
			delete(d.m.Pressed, k.condition)
		}
	}
	d.m.At = d.o.At
}

// met reports whether the threshold is met. A threshold that was met before stays met until Least and Beyond are
// available.
func (t Threshold) met(r Reading, was bool) bool {
	least := t.Least.Of(r.Capacity)
	if was {
		if beyond := t.Beyond.Of(r.Capacity); beyond > 0 {
			return r.Available-least < beyond
		}
	}
	return r.Available < least
}

// note records a reading, and the rate at which the resource was used up since the last reading. Each observation
// halves the weight of older rates.
func (d *decision) note(s Signal, r Reading) {
	if last, ok := d.m.Read[s]; ok && d.o.At-d.m.At >= soonest/2 {
		rate := float64(last.Available-r.Available) / (d.o.At - d.m.At).Seconds()
		d.m.Fill[s] = max(d.m.Fill[s]/2, rate)
	}
	d.m.Read[s] = r
}

// nextObservation returns when the next observation is needed if no action follows from this one.
func (d *decision) nextObservation() time.Duration {
	next := time.Duration(-1)
	by := func(at time.Duration) {
		if next < 0 || at < next {
			next = at
		}
	}
	for _, t := range d.Thresholds {
		if since, met := d.m.Met[t.id()]; met {
			if due := since + t.Grace; due > d.now {
				by(due)
			}
			by(d.now + whilePressed)
			continue
		}
		r, readable := d.o.Readings[t.Signal]
		if !readable {
			again := unreadAgain
			if slices.Contains(d.o.Absent, t.Signal) {
				again = latest
			}
			by(d.now + again)
			continue
		}
		if t.Signal != Processes {
			by(d.now + t.unmetFor(r, d.m.Fill[t.Signal]))
			continue
		}
		by(d.now + latest)
		if at := d.now + t.unmetFor(r, d.m.Fill[Processes]); d.act.Count < 0 || at < d.act.Count {
			d.act.Count = at
		}
	}
	for _, last := range d.m.Pressed {
		by(max(last+d.Transition, d.now+soonest))
	}
	return next
}

// unmetFor returns how long after a reading the threshold isn't met, if the resource is used up at the given rate or at
// that of one program, whichever is higher. It is at least soonest and at most latest.
func (t Threshold) unmetFor(r Reading, rate float64) time.Duration {
	seconds := float64(r.Available-t.Least.Of(r.Capacity)) / max(kindOf(t.Signal).fill, rate)
	if seconds >= latest.Seconds() {
		return latest
	}
	return max(soonest, time.Duration(seconds*float64(time.Second)))
}

// counted returns Act.Count after a count of the processes between two observations. It is now if a threshold is newly
// met.
func (m *Memory) counted(s Settings, r Reading, now time.Duration) time.Duration {
	rate := float64(m.Read[Processes].Available-r.Available) / max(now-m.At, soonest).Seconds()
	m.Fill[Processes] = max(m.Fill[Processes], rate)
	next := now + latest
	for _, t := range s.Thresholds {
		if _, was := m.Met[t.id()]; t.Signal != Processes || was {
			continue
		}
		if t.met(r, false) {
			return now
		}
		next = min(next, now+t.unmetFor(r, m.Fill[Processes]))
	}
	return next
}

// awaitEnd updates Memory.Ending.
func (d *decision) awaitEnd() {
	switch {
	case d.m.Ending == "":
	case d.o.Holding && d.now < d.m.Until:
		d.awaits = true
		d.act.Observe = min(d.act.Observe, d.now+whileEnding)
		if d.act.Observe < 0 {
			d.act.Observe = d.now + whileEnding
		}
	default:
		d.m.forgetEnding(d.now)
	}
}

// forgetEnding stops waiting for the pod that was ended last. The next decision needs figures that were read later than
// now.
func (m *Memory) forgetEnding(now time.Duration) {
	m.Ending, m.Until, m.Soft, m.FreshAfter = "", 0, false, now
}

// choose chooses the next action, a reclaim or a pod to end, for the first threshold whose grace period is over. While
// the end of a pod is awaited, another action is possible only for a hard threshold, and only if that pod was ended for
// a soft one.
func (d *decision) choose(pods []Pod) {
	for i, t := range d.Thresholds {
		since, met := d.m.Met[t.id()]
		if !met || d.o.At-since < t.Grace || d.awaits && (t.Grace > 0 || !d.m.Soft) {
			continue
		}
		k, r := kindOf(t.Signal), d.o.Readings[t.Signal]
		d.act.For, d.act.Reading = &d.Thresholds[i], r
		if steps := k.reclaims(d.o.Layout); d.m.Reclaimed[t.Signal] < len(steps) {
			d.act.Reclaim = steps[d.m.Reclaimed[t.Signal]]
			d.m.Reclaimed[t.Signal]++
			d.m.ReclaimedAt[t.Signal] = d.now
			d.m.FreshAfter, d.act.Observe = d.now, d.now
			return
		}
		var has Needs
		if pods != nil {
			has = allFigures().without(d.o.Unmeasured)
		}
		if k.needs.without(has) != (Needs{}) {
			d.act.Needs, d.act.Observe, d.act.NoneFit, d.act.Most = has.with(k.needs), d.now, false, ""
			return
		}
		missing := t.Least.Of(r.Capacity) + t.Beyond.Of(r.Capacity) - r.Available
		order := k.rank(pods, d.o.Layout, missing/leastPart)
		if len(order) == 0 {
			d.act.NoneFit, d.act.Most = true, k.most(pods, d.o.Layout)
			if d.now-d.m.ReclaimedAt[t.Signal] >= reclaimEvery {
				delete(d.m.Reclaimed, t.Signal) // pods that ended by themselves leave containers and images
			}
			continue
		}
		d.act.NoneFit, d.act.Most = false, ""
		d.act.Victim, d.act.Next = d.victim(k, t, r, order[0]), order[1:]
		delete(d.m.Reclaimed, t.Signal)
		d.m.Ending, d.m.Until = order[0].UID, d.now+min(d.act.Victim.Grace, longest)+endPatience
		d.m.Soft = t.Grace > 0
		d.m.FreshAfter, d.act.Observe = d.now, d.now+whileEnding
		return
	}
}
