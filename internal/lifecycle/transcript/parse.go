package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Transcript is the content of a parsed file.
type Transcript struct {
	// Comment is the text at the top of the file.
	Comment string
	Steps   []Step
}

// Step is one decision of a transcript.
type Step struct {
	// Line is the number of the step's first line in the file.
	Line int
	// Comments are the lines before the step that begin with #, unchanged.
	Comments []string
	// First says that a segment begins with this step: times and changes from here on are relative to it.
	First bool
	// Incomplete is why the step can't be replayed; empty if it can.
	Incomplete string
	// Input is the input of the decision. Its Memory is used only if Restored is set; otherwise the previous decision's
	// Memory is used.
	Input    lifecycle.Input
	Restored bool
	// Decision holds the lines of the decision, without indentation.
	Decision []string

	base    time.Time
	actions []pod.Action
	// inFlightGiven says that lines of the step list the actions under way.
	inFlightGiven bool
}

// Parse reads a file that Recorder.Bytes wrote or a person edited. Its errors name the line.
func Parse(data []byte) (*Transcript, error) {
	ar := txtar.Parse(data)
	p := parser{pods: map[string]*v1.Pod{}, cut: map[string]string{}}
	var steps []byte
	found := false
	for _, f := range ar.Files {
		switch {
		case f.Name == section:
			steps, found = f.Data, true
		case strings.HasPrefix(f.Name, podWord) && strings.HasSuffix(f.Name, ".yaml"):
			if err := p.addPod(f); err != nil {
				return nil, err
			}
		}
	}
	if !found {
		return nil, fmt.Errorf("there is no section %q: this isn't a transcript", section)
	}
	first := lineOfSection(data)
	for i, line := range strings.Split(string(steps), "\n") {
		p.line = first + i
		if err := p.read(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	p.deduceInFlight()
	for i := range p.steps {
		if s := &p.steps[i]; s.Incomplete == "" && s.Input.Pod == nil && s.Input.Stop == nil {
			return nil, fmt.Errorf("line %d: there is neither a pod nor a stop: a step needs `> pod pod.yaml` or `> "+
				"stop`", s.Line)
		}
	}
	return &Transcript{Comment: string(ar.Comment), Steps: p.steps}, nil
}

// lineOfSection returns the number of the first line below the transcript's marker.
func lineOfSection(data []byte) int {
	marker := []byte("-- " + section + " --\n")
	at := bytes.Index(data, marker)
	for at > 0 && data[at-1] != '\n' {
		next := bytes.Index(data[at+1:], marker)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return bytes.Count(data[:max(at, 0)], []byte("\n")) + 2
}

// parser holds the state while a file is parsed.
type parser struct {
	pods     map[string]*v1.Pod
	cut      map[string]string
	steps    []Step
	comments []string
	line     int
	// pending are the actions that results of the current step can refer to.
	pending []pod.Action
	// deciding says that all inputs of the step are read.
	deciding bool
}

func (p *parser) addPod(f txtar.File) error {
	if note, ok := bytes.CutPrefix(f.Data, []byte(cutMark+" ")); ok {
		text, _, _ := strings.Cut(string(note), "\n")
		p.cut[f.Name] = text
		return nil
	}
	var spec v1.Pod
	if err := yaml.UnmarshalStrict(f.Data, &spec); err != nil {
		return fmt.Errorf("section %s isn't a pod: %w", f.Name, err)
	}
	p.pods[f.Name] = &spec
	return nil
}

func (p *parser) read(line string) error {
	if strings.HasPrefix(line, "#") {
		p.comments = append(p.comments, line)
		return nil
	}
	if strings.TrimSpace(line) == "" {
		return nil
	}
	if rest, ok := strings.CutPrefix(line, inputLead); ok {
		list, err := words.Split(rest)
		if err != nil {
			return err
		}
		if len(list) == 0 {
			return errors.New("nothing follows the >")
		}
		return p.readInput(list)
	}
	rest, ok := strings.CutPrefix(line, decisionLead)
	switch {
	case !ok:
		return errors.New(`a line begins with "> " (what happened), two spaces (what was decided) or # (a comment)`)
	case len(p.steps) == 0:
		return errors.New("a decision has to follow a line with the time")
	}
	return p.readDecision(rest)
}

func (p *parser) readInput(list []string) error {
	switch word := list[0]; {
	case word == atWord:
		if len(list) != 2 {
			return errors.New("at is followed by one time")
		}
		at, err := words.ParseTime(list[1], time.Time{})
		if err != nil {
			return err
		}
		p.deduceInFlight()
		p.steps = append(p.steps, Step{First: true, Restored: true, base: at, Input: lifecycle.Input{Now: at}})
		p.pending = nil
	case word[0] == '+' || word[0] == '-':
		if len(p.steps) == 0 {
			return errors.New("the first step has to begin with the time it was at, like > at 2026-01-31T12:00:00Z")
		}
		if len(list) != 1 {
			return fmt.Errorf("nothing may follow %s on its line", word)
		}
		return p.next(word)
	case len(p.steps) == 0:
		return errors.New("the first line has to give the time, like > at 2026-01-31T12:00:00Z")
	case p.deciding:
		return errors.New("what happened has to come before what was decided: is a line with the time missing?")
	default:
		return p.set(&p.steps[len(p.steps)-1], list)
	}
	p.start()
	return nil
}

// next begins a step within a segment.
func (p *parser) next(word string) error {
	p.deduceInFlight()
	last := &p.steps[len(p.steps)-1]
	now, err := words.ParseTime(word, last.base)
	if err != nil {
		return err
	}
	s := Step{Input: last.Input, base: last.base, Incomplete: last.Incomplete}
	s.Input.Now, s.Input.Results, s.Input.Memory = now, nil, lifecycle.Memory{}
	t := turn{in: last.Input, d: lifecycle.Decision{Actions: last.actions}}
	p.pending = t.pending()
	p.steps = append(p.steps, s)
	p.start()
	return nil
}

func (p *parser) start() {
	s := &p.steps[len(p.steps)-1]
	s.Line, s.Comments = p.line, p.comments
	p.comments, p.deciding = nil, false
}

// deduceInFlight sets the actions under way once all inputs of the newest step are read.
func (p *parser) deduceInFlight() {
	if len(p.steps) == 0 {
		return
	}
	if s := &p.steps[len(p.steps)-1]; !p.deciding && !s.inFlightGiven {
		s.Input.InFlight = remaining(p.pending, s.Input.Results)
	}
	p.deciding = true
}

// set applies one line to the inputs of a step.
func (p *parser) set(s *Step, list []string) error {
	word, rest := list[0], list[1:]
	if word == incompleteWord {
		s.Incomplete = "what it was decided from isn't whole"
		if len(rest) == 1 {
			s.Incomplete, _ = words.Unquote(rest[0])
		}
		return nil
	}
	if s.Incomplete != "" {
		return nil // the changes are relative to inputs that are missing
	}
	f := formats()
	switch word {
	case podWord:
		return p.setPod(s, rest)
	case inFlightWord:
		return s.setInFlight(rest)
	case resultWord:
		r, err := parseResult(rest, p.pending, s.Input.Now, s.base)
		s.Input.Results = append(s.Input.Results, r)
		return err
	case memoryWord:
		s.Restored, s.Input.Memory = true, lifecycle.Memory{}
		err := f.memory.Set(words.At(&s.Input.Memory), rest, s.base)
		for key, retry := range s.Input.Memory.Retries {
			if target, ok := strings.CutPrefix(key, olderSaveCheckpoint+"/"); ok {
				delete(s.Input.Memory.Retries, key)
				s.Input.Memory.Retries[string(pod.SaveCheckpoint)+"/"+target] = retry
			}
		}
		return err
	case "gone":
		if len(rest) == 1 && rest[0] == podWord {
			s.Input.Pod = nil
			return nil
		}
	}
	return f.input.Apply(words.At(&s.Input), list, s.base)
}

func (p *parser) setPod(s *Step, rest []string) error {
	if len(rest) != 1 {
		return errors.New("pod is followed by the name of a section")
	}
	if why, ok := p.cut[rest[0]]; ok {
		s.Incomplete = why
		return nil
	}
	s.Input.Pod = p.pods[rest[0]]
	if s.Input.Pod == nil {
		return fmt.Errorf("there is no section %s", rest[0])
	}
	return nil
}

func (s *Step) setInFlight(rest []string) error {
	if !s.inFlightGiven {
		s.Input.InFlight, s.inFlightGiven = nil, true
	}
	if len(rest) == 1 && rest[0] == noneWord {
		return nil
	}
	a, err := parseAction(rest, s.base)
	s.Input.InFlight = append(s.Input.InFlight, a)
	return err
}

func (p *parser) readDecision(line string) error {
	p.deduceInFlight()
	s := &p.steps[len(p.steps)-1]
	s.Decision = append(s.Decision, line)
	rest, ok := strings.CutPrefix(line, doWord+" ")
	if !ok || s.Incomplete != "" {
		return nil
	}
	list, err := words.Split(rest)
	if err != nil {
		return err
	}
	a, err := parseAction(list, s.base)
	s.actions = append(s.actions, a)
	if err == nil { // in the present format: older journals have other keys
		s.Decision[len(s.Decision)-1] = "do" + string(appendAction(nil, &a, s.base))
	}
	return err
}

func parseAction(list []string, base time.Time) (a pod.Action, err error) {
	err = formats().action.Set(words.At(&a), list, base)
	a.Kind = kindOf(string(a.Kind))
	return a, err
}

// olderSaveCheckpoint is the name of pod.SaveCheckpoint in older journals.
const olderSaveCheckpoint = "Keep"

// kindOf returns the kind of action for its name in a transcript.
func kindOf(word string) pod.ActionKind {
	if word == olderSaveCheckpoint {
		return pod.SaveCheckpoint
	}
	return pod.ActionKind(word)
}
