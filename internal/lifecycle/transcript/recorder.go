package transcript

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
)

// Recorder is the flight recorder of one pod: a ring of text segments, each of which can be read without the earlier
// ones. Its methods are safe for concurrent use; Record has to be called in the order of the decisions.
type Recorder struct {
	limit int

	mu       sync.Mutex
	segments []segment
	versions versions
	// last is the newest step, version the number of its pod version; 0 for none.
	last     *turn
	version  int
	comments []string
	dropped  bool
}

// segment is a run of steps that begins with a complete list of inputs.
type segment struct {
	text []byte
	// base is the time that times in the segment are relative to.
	base time.Time
	// version is the oldest version of the pod that the segment refers to; 0 for none.
	version int
	// whole is the length of its first step, which has all inputs.
	whole int
}

// NewRecorder returns a recorder that keeps at most limit bytes of text, including specs. With a limit of 0 or less
// it records nothing.
func NewRecorder(limit int) *Recorder { return &Recorder{limit: limit} }

// Comment writes a line before the next step, which is then recorded even if nothing has changed. Comment prefixes
// the line with # if it doesn't begin with one.
func (r *Recorder) Comment(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !strings.HasPrefix(line, "#") {
		line = "# " + line
	}
	list := strings.Split(line, "\n")
	for i := range list {
		list[i] = terminal.Keep(list[i])
	}
	r.comments = append(r.comments, strings.Join(list, "\n# "))
}

// Record records a decision and its inputs. The caller must not change them afterwards. A decision in which only the
// time differs from the previous one isn't recorded.
func (r *Recorder) Record(in lifecycle.Input, d lifecycle.Decision) {
	if r.limit <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &turn{in: in, d: d}
	version := r.versions.of(t.in.Pod, r.limit/2)
	if r.full(version) || !r.step(t, version) {
		r.startSegment(t, version)
	}
	r.version = version
	r.comments = nil
	r.trim()
	// Release data that only this step needed.
	t.in.Memory, t.in.Results, t.d.Events, t.d.Cancel = lifecycle.Memory{}, nil, nil, nil
	r.last = t
}

func (r *Recorder) current() *segment { return &r.segments[len(r.segments)-1] }

// room is the space for text that remains after the specs that the text refers to: the specs from this version on. A
// segment takes at most 7/8 of the space: 3/8 for the inputs and 1/4 for the decision of its first step, 1/8 for
// further steps, and another 1/8 for the last step.
func (r *Recorder) room(version int) int { return r.limit - r.versions.since(version) }

// full reports whether a step with this version of the pod has to begin a segment.
func (r *Recorder) full(version int) bool {
	if len(r.segments) == 0 {
		return true
	}
	s, room := r.current(), r.room(r.current().version)
	// A new version of the pod may have used up the space of the segment.
	return len(s.text) >= max(room/4, s.whole+room/8) || len(s.text) > room*7/8 ||
		version != r.version && (r.versions.cut(version) != "" || room < r.limit/2)
}

// step adds a step to the current segment. It returns false in three cases: the step can't be written as changes; it is
// so long that it should begin a segment; or, because the clock was set, it is so far from the segment's begin that its
// time can't be written as an offset.
func (r *Recorder) step(t *turn, version int) bool {
	s := r.current()
	if words.Far(t.in.Now, s.base) {
		return false
	}
	mark := len(s.text)
	text := r.appendComments(s.text)
	text = words.AppendTime(append(text, inputLead...), t.in.Now, s.base)
	text = append(text, '\n')
	before := len(text)
	file := ""
	if version != r.version {
		file = r.versions.name(version)
	}
	text = appendInputs(text, t, r.last, file, s.base)
	changed := len(text) > before || len(r.comments) > 0
	text, differs := appendDecision(text, t, r.last, s.base)
	if !changed && !differs && sameMemory(t) {
		s.text = text[:mark]
		return true
	}
	if len(text)-mark > r.room(s.version)/8 || !writable(formats().input, words.At(&t.in)) {
		s.text = text[:mark]
		return false
	}
	s.text = text
	if s.version == 0 {
		s.version = version
	}
	return true
}

// startSegment starts a segment with a step that has all inputs. If the inputs take too much space, the step has only
// the decision, and the reason why the inputs are missing.
func (r *Recorder) startSegment(t *turn, version int) {
	if len(r.segments) > 0 {
		r.current().text = slices.Clone(r.current().text) // without spare capacity
	}
	base, room := t.in.Now.Round(0), r.room(version)
	text := make([]byte, 0, min(room/8, 3<<10))
	text = words.AppendTime(append(r.appendComments(text), inputLead+atWord+" "...), base, time.Time{})
	text = append(text, '\n')
	head := len(text)
	why := r.versions.cut(version)
	switch {
	case why != "":
	case !writable(formats().input, words.At(&t.in)):
		why = "two things in one of its lists go by the same name"
	default:
		text = appendInputs(text, t, &turn{}, r.versions.name(version), base)
	}
	inputs := len(text)
	text, _ = appendDecision(text, t, &turn{}, base)
	if in, out := inputs-head, len(text)-inputs; in > room*3/8 || out > room/4 {
		why = fmt.Sprintf("it takes %d and %d bytes, and there is room for %d and %d", in, out, room*3/8, room/4)
	}
	if why != "" {
		text = incomplete(text[:head], why, text[inputs:], room/4)
	}
	r.segments = append(r.segments, segment{text: text, base: base, version: version, whole: len(text)})
}

// incomplete returns a first step without inputs, with the reason for their absence.
func incomplete(head []byte, why string, decision []byte, most int) []byte {
	if len(decision) > most {
		decision = []byte(decisionLead + "(too long to be kept)\n")
	}
	text := append(slices.Clone(head), inputLead+incompleteWord+" "...)
	text = append(strconv.AppendQuote(text, why), '\n')
	return append(text, decision...)
}

func (r *Recorder) appendComments(dst []byte) []byte {
	for _, line := range r.comments {
		dst = append(append(dst, line...), '\n')
	}
	return dst
}

// appendInputs writes the inputs of a step as changes since the previous step.
func appendInputs(dst []byte, t, last *turn, podFile string, base time.Time) []byte {
	switch {
	case t.in.Pod == nil && last.in.Pod != nil:
		dst = append(dst, inputLead+"gone "+podWord+"\n"...)
	case podFile != "":
		dst = append(append(append(dst, inputLead+podWord+" "...), podFile...), '\n')
	}
	f := formats()
	dst = appendChanges(dst, f.input, words.At(&t.in), words.At(&last.in), base)
	pending := last.pending()
	for i := range t.in.Results {
		dst = appendResult(dst, &t.in.Results[i], pending, t.in.Now, base)
	}
	dst = appendInFlight(dst, t.in.InFlight, remaining(pending, t.in.Results), base)
	return appendMemory(dst, &t.in.Memory, &last.d.Memory, base)
}

// sameMemory reports whether a decision left the memory unchanged.
func sameMemory(t *turn) bool {
	return formats().memory.Equal(words.At(&t.in.Memory), words.At(&t.d.Memory))
}

// trim drops the oldest segments until the rest fits. If the last segment alone is too large, trim frees its spare
// capacity.
func (r *Recorder) trim() {
	for len(r.segments) > 1 && r.size() > r.limit {
		r.segments = slices.Delete(r.segments, 0, 1)
		r.dropped = true
		r.versions.forget(r.oldest())
	}
	if r.size() > r.limit { // slices.Clone may leave more capacity than there is room for
		text := r.current().text
		r.current().text = append(make([]byte, 0, len(text)), text...)
	}
}

// oldest returns the oldest version of the pod that a segment refers to; 0 if none does.
func (r *Recorder) oldest() int {
	oldest := 0
	for i := range r.segments {
		if v := r.segments[i].version; v > 0 && (oldest == 0 || v < oldest) {
			oldest = v
		}
	}
	return oldest
}

func (r *Recorder) size() int {
	n := r.versions.since(0)
	for i := range r.segments {
		n += cap(r.segments[i].text)
	}
	return n
}
