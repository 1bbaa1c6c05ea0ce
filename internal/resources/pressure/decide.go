package pressure

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Reading is how much of a signal's resource is available, and of how much in all.
type Reading struct{ Available, Capacity int64 }

// Observation is the state of the node's resources. Times are since the machine was booted, so that a step of the clock
// doesn't change them.
type Observation struct {
	// At is when reading began.
	At time.Duration
	// Readings are the signals that could be read.
	Readings map[Signal]Reading
	Layout   Layout
}

// Memory is the state between decisions. It is saved, so that a new agent continues where the last one ended, but not
// after a boot.
type Memory struct {
	// Met is since when thresholds are met in all observations, by Threshold.id.
	Met map[string]time.Duration `json:"met,omitempty"`
	// Pressed is when the thresholds of each condition that holds were last met.
	Pressed map[v1.NodeConditionType]time.Duration `json:"pressed,omitempty"`
	// Reclaimed is how many steps were taken for a signal since the last pod was ended for it.
	Reclaimed map[Signal]int `json:"reclaimed,omitempty"`
	// FreshAfter: an observation from before doesn't show the effect of the last act.
	FreshAfter time.Duration `json:"freshAfter,omitempty"`
	// Ending is the UID of the pod that was ended last, until it has ended or Until is over.
	Ending string        `json:"ending,omitempty"`
	Until  time.Duration `json:"until,omitempty"`
	// Fill is the fastest rate, in a second, at which a signal's resource ran out, and Read its last reading.
	Fill map[Signal]float64 `json:"-"`
	Read map[Signal]Reading `json:"-"`
	At   time.Duration      `json:"-"`
}

func (m Memory) clone() Memory {
	m.Met, m.Pressed, m.Reclaimed = cloned(m.Met), cloned(m.Pressed), cloned(m.Reclaimed)
	m.Fill, m.Read = cloned(m.Fill), cloned(m.Read)
	return m
}

func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// Act is the result of a decision. At most one of Reclaim and Victim is set.
type Act struct {
	// Pressure are the node's conditions.
	Pressure admission.Pressure
	// For is the threshold that Reclaim or Victim is for, with its reading; also if no pod may be ended.
	For     *Threshold
	Reading Reading
	// Begins says that this is the first step for the threshold since it was met, or since the last pod was ended.
	Begins  bool
	Reclaim Reclaim
	// Victim is the pod to end, with the grace period and the texts of its end.
	Victim  *Victim
	NoneFit bool
	// Observe is when the next observation is needed, without an alarm: at once if it isn't later than now. Negative
	// for never.
	Observe time.Duration
}

const (
	// soonest and latest are the limits of the time between two observations while no threshold is met.
	soonest, latest = time.Second, time.Minute
	// whilePressed is the time between two observations while a condition holds. It is the kubelet's period.
	whilePressed = 10 * time.Second
	// endPatience is how long the end of a pod may take beyond its grace period before another one is chosen.
	endPatience = 10 * time.Second
	// longest is the longest time that the end of a pod is awaited.
	longest = 24 * time.Hour
	// whileEnding is the time between two observations while a pod ends, if nothing reports its end.
	whileEnding = time.Second
)

// Decide decides what to do about an observation. pods are all pods of the node. now is the time since boot. It changes
// nothing that it is given.
func Decide(s Settings, m Memory, o Observation, pods []Pod, now time.Duration) (Memory, Act) {
	d := decision{Settings: s, m: m.clone(), o: o, now: now, kinds: kinds()}
	d.see()
	d.act.Observe = d.nextObservation()
	if d.awaits(pods) {
		return d.m, d.act
	}
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
}

// see updates the sightings of thresholds, the conditions and the rates from the observation.
func (d *decision) see() {
	met := map[string]time.Duration{}
	for _, k := range d.kinds {
		r, readable := d.o.Readings[k.signal]
		if !readable || r.Capacity <= 0 { // a file system without a size can't run short
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
		if !any {
			delete(d.m.Reclaimed, k.signal)
		} else {
			d.m.Pressed[k.condition] = max(d.m.Pressed[k.condition], d.o.At)
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

// met reports whether the threshold is met. One that was met before still is until Beyond is available in addition.
func (t Threshold) met(r Reading, was bool) bool {
	least := t.Least.Of(r.Capacity)
	if was {
		if beyond := t.Beyond.Of(r.Capacity); beyond > 0 {
			return r.Available-least < beyond
		}
	}
	return r.Available < least
}

// note records a reading, and the rate at which the resource ran out since the last one.
func (d *decision) note(s Signal, r Reading) {
	if last, ok := d.m.Read[s]; ok && d.o.At-d.m.At >= soonest/2 {
		rate := float64(last.Available-r.Available) / (d.o.At - d.m.At).Seconds()
		d.m.Fill[s] = max(d.m.Fill[s], rate)
	}
	d.m.Read[s] = r
}

// nextObservation returns when the next observation is needed if this one leads to nothing.
func (d *decision) nextObservation() time.Duration {
	next := time.Duration(-1)
	by := func(at time.Duration) {
		if next < 0 || at < next {
			next = at
		}
	}
	for _, t := range d.Thresholds {
		if since, met := d.m.Met[t.id()]; met {
			by(max(since+t.Grace, d.now+whileEnding))
			by(d.now + whilePressed)
			continue
		}
		r, readable := d.o.Readings[t.Signal]
		if !readable {
			by(d.now + latest) // it may be readable again
			continue
		}
		rate := max(kindOf(t.Signal).fill, d.m.Fill[t.Signal])
		left := latest
		if seconds := float64(r.Available-t.Least.Of(r.Capacity)) / rate; seconds < latest.Seconds() {
			left = max(soonest, time.Duration(seconds*float64(time.Second)))
		}
		by(d.now + left)
	}
	for _, last := range d.m.Pressed {
		by(max(last+d.Transition, d.now))
	}
	return next
}

// awaits reports whether the pod that was ended last hasn't ended yet.
func (d *decision) awaits(pods []Pod) bool {
	if d.m.Ending == "" {
		return false
	}
	for i := range pods {
		if p := &pods[i]; p.UID == d.m.Ending && p.Running && d.now < d.m.Until {
			d.act.Observe = d.now + whileEnding
			return true
		}
	}
	d.m.Ending, d.m.Until = "", 0
	d.m.FreshAfter = d.now
	return false
}

// choose takes the next step for the first threshold whose grace period is over: a reclaim, or a pod.
func (d *decision) choose(pods []Pod) {
	for i, t := range d.Thresholds {
		since, met := d.m.Met[t.id()]
		if !met || d.o.At-since < t.Grace {
			continue
		}
		k, r := kindOf(t.Signal), d.o.Readings[t.Signal]
		d.act.For, d.act.Reading, d.act.Begins = &d.Thresholds[i], r, d.m.Reclaimed[t.Signal] == 0
		if steps := k.reclaims(d.o.Layout); d.m.Reclaimed[t.Signal] < len(steps) {
			d.act.Reclaim = steps[d.m.Reclaimed[t.Signal]]
			d.m.Reclaimed[t.Signal]++
			d.m.FreshAfter, d.act.Observe = d.now, d.now
			return
		}
		order := k.rank(pods, d.o.Layout)
		if len(order) == 0 {
			d.act.NoneFit, d.act.Observe = true, d.now+whilePressed
			delete(d.m.Reclaimed, t.Signal) // pods that end by themselves leave containers and images
			return
		}
		d.act.Victim = d.victim(k, t, r, order[0])
		delete(d.m.Reclaimed, t.Signal)
		d.m.Ending, d.m.Until = order[0].UID, d.now+min(d.act.Victim.Grace, longest)+endPatience
		d.m.FreshAfter, d.act.Observe = d.now, d.now+whileEnding
		return
	}
}
