package pressure

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Step is a decision with its inputs, a line of a transcript in JSON. Durations are in nanoseconds, and times are since
// boot, except Time.
type Step struct {
	// Kind is StepKind.
	Kind        string             `json:"kind"`
	Time        time.Time          `json:"time"`
	Outcome     Outcome            `json:"outcome"`
	Now         time.Duration      `json:"now"`
	Observation Observation        `json:"observation"`
	Settings    Settings           `json:"settings"`
	Memory      Memory             `json:"memory"`
	Fill        map[Signal]float64 `json:"fill,omitempty"`
	Read        map[Signal]Reading `json:"read,omitempty"`
	// Pods are all pods with the figures that were measured; null if no pod had to be chosen.
	Pods []Pod `json:"pods"`
}

// StepKind distinguishes the lines of a transcript from other JSON.
const StepKind = "EvictionDecision"

// Outcome is an Act as a transcript shows it.
type Outcome struct {
	Pressure admission.Pressure `json:"pressure"`
	// Signal and Least belong to the threshold that is met.
	Signal  Signal  `json:"signal,omitempty"`
	Least   string  `json:"least,omitempty"`
	Reclaim Reclaim `json:"reclaim,omitempty"`
	// Evicts is the pod that is ended; Next are the pods that would be ended after it.
	Evicts  string        `json:"evicts,omitempty"`
	Grace   time.Duration `json:"grace,omitempty"`
	Message string        `json:"message,omitempty"`
	Next    []string      `json:"next,omitempty"`
	Needs   *Needs        `json:"needs,omitempty"`
	NoneFit bool          `json:"noneFit,omitempty"`
	Observe time.Duration `json:"observe"`
}

func outcomeOf(a Act) Outcome {
	o := Outcome{Pressure: a.Pressure, Reclaim: a.Reclaim, NoneFit: a.NoneFit, Observe: a.Observe}
	if a.For != nil {
		o.Signal, o.Least = a.For.Signal, a.For.Least.String()
	}
	if v := a.Victim; v != nil {
		o.Evicts, o.Grace, o.Message = v.Namespace+"/"+v.Name, v.Grace, v.Message
	}
	for _, p := range a.Next {
		o.Next = append(o.Next, p.Namespace+"/"+p.Name)
	}
	if a.Needs != (Needs{}) {
		o.Needs = &a.Needs
	}
	return o
}

// transcriptLimit is the size of a transcript in bytes. The newest step is kept even if it is larger.
const transcriptLimit = 256 << 10

// transcript stores the latest steps whose outcome differs from that of the step before.
type transcript struct {
	steps [][]byte
	size  int
	last  Outcome
}

// add adds a decision, unless it repeats the last one: most observations change nothing.
func (t *transcript) add(at time.Time, s Settings, m Memory, o Observation, pods []Pod, now time.Duration,
	a Act) error {
	outcome := outcomeOf(a)
	same := outcome
	same.Observe = 0
	if reflect.DeepEqual(same, t.last) && a.Reclaim == "" && a.Victim == nil {
		return nil
	}
	t.last = same
	line, err := json.Marshal(Step{Kind: StepKind, Time: at, Outcome: outcome, Now: now, Observation: o, Settings: s,
		Memory: m, Fill: m.Fill, Read: m.Read, Pods: pods})
	if err != nil {
		return err
	}
	t.steps, t.size = append(t.steps, append(line, '\n')), t.size+len(line)+1
	for t.size > transcriptLimit && len(t.steps) > 1 {
		t.size -= len(t.steps[0])
		t.steps[0], t.steps = nil, t.steps[1:]
	}
	return nil
}

func (t *transcript) text() []byte { return bytes.Join(t.steps, nil) }

// ParseStep reads a line of a transcript.
func ParseStep(line []byte) (Step, error) {
	var s Step
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return Step{}, err
	}
	if s.Kind != StepKind {
		return Step{}, fmt.Errorf("kind %q isn't %s", s.Kind, StepKind)
	}
	s.Memory.Fill, s.Memory.Read = s.Fill, s.Read
	return s, nil
}

// Replay repeats the decision of a step.
func (s *Step) Replay() Outcome {
	_, act := Decide(s.Settings, s.Memory, s.Observation, s.Pods, s.Now)
	return outcomeOf(act)
}
