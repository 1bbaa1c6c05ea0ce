package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
)

// maxFile is the maximum size of a transcript in bytes: twice the maximum of --journal-bytes, because a pod needs
// more space in a file than in memory.
const maxFile = 128 << 20

// replayed is the result of repeating the decisions of a transcript.
type replayed struct {
	steps int
	found []transcript.Difference
	// incomplete is the number of steps that can't be replayed, because of why.
	incomplete int
	why        string
	// untried is the number of steps that weren't replayed because a step before them in their segment panicked.
	untried int
}

// replay repeats the decisions of a transcript, which is a pod's or the node's. It reads the file at path, or stdin if
// path is "-". Errors name the file and, if the text is invalid, the line.
func replay(path string, stdin io.Reader) (replayed, error) {
	text, err := read(path, stdin, maxFile)
	if err != nil {
		return replayed{}, err
	}
	again := replayPod
	if bytes.HasPrefix(text, []byte("{")) {
		again = replayNode
	}
	result, err := again(text)
	if err != nil {
		err = fmt.Errorf("%s: %s", transcriptName(path), terminal.Line(err.Error()))
	}
	return result, err
}

func read(path string, stdin io.Reader, limit int64) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", transcriptName(path), err)
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes: no journal is", transcriptName(path), limit)
	}
	return text, nil
}

// replayPod repeats the decisions about a pod.
func replayPod(text []byte) (replayed, error) {
	t, err := parse(text)
	if err != nil {
		return replayed{}, err
	}
	result := replayed{steps: len(t.Steps)}
	result.found, result.untried = decider(transcript.Replay).differences(t)
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Incomplete != "" {
			result.incomplete++
			result.why = s.Incomplete
		}
	}
	return result, nil
}

// replayNode repeats the decisions about evictions.
func replayNode(text []byte) (replayed, error) {
	var result replayed
	for line := range bytes.Lines(text) {
		result.steps++
		s, err := pressure.ParseStep(line)
		if err != nil {
			return replayed{}, fmt.Errorf("line %d: %w", result.steps, err)
		}
		recorded, today := outcome(s.Outcome), ""
		func() {
			defer func() {
				if p := recover(); p != nil {
					today = fmt.Sprintf("(the core fails on this, which is a bug: %v)", p)
				}
			}()
			today = outcome(s.Replay())
		}()
		if recorded != today {
			result.found = append(result.found, transcript.Difference{Step: result.steps - 1, Line: result.steps,
				Time: s.Time, Recorded: []string{recorded}, Now: []string{today}})
		}
	}
	return result, nil
}

func outcome(o pressure.Outcome) string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// parse parses a transcript. Files aren't trusted: a panic of a library is reported as a damaged transcript.
func parse(text []byte) (t *transcript.Transcript, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: this isn't a transcript (%v)", p)
		}
	}()
	return transcript.Parse(text)
}

// transcriptName returns the name of a file for messages.
func transcriptName(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// print prints the differences and the number of steps. It reports whether there are no differences.
func (r replayed) print(out io.Writer, name string) (same bool, err error) {
	name = terminal.Keep(name)
	var text strings.Builder
	for i := range r.found {
		d := &r.found[i]
		fmt.Fprintf(&text, "%s:%d: step %d, at %s:\n", name, d.Line, d.Step+1, d.Time.UTC().Format(time.RFC3339Nano))
		for _, line := range d.Recorded {
			text.WriteString("- " + terminal.Keep(line) + "\n")
		}
		for _, line := range d.Now {
			text.WriteString("+ " + terminal.Keep(line) + "\n")
		}
	}
	if len(r.found) > 0 {
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%s: %s replayed, ", name, steps(r.steps-r.incomplete-r.untried))
	if len(r.found) == 0 {
		text.WriteString("all decided as they were\n")
	} else {
		fmt.Fprintf(&text, "%d decided otherwise today (- recorded, + today)\n", len(r.found))
	}
	if r.incomplete > 0 {
		fmt.Fprintf(&text, "%s: %s could not be replayed: %s\n", name, steps(r.incomplete), terminal.Line(r.why))
	}
	if r.untried > 0 {
		fmt.Fprintf(&text, "%s: %s could not be replayed after one that fails\n", name, steps(r.untried))
	}
	_, err = io.WriteString(out, text.String())
	return len(r.found) == 0, err
}

func steps(n int) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// decider replays transcripts.
type decider func(*transcript.Transcript) []transcript.Difference

// differences replays a transcript segment by segment, because segments are independent. If the core panics at a step,
// as it may have when the step was recorded, that step is a difference and ends its segment. untried is the number of
// steps that weren't replayed because a step before them in their segment panicked.
func (decide decider) differences(t *transcript.Transcript) (found []transcript.Difference, untried int) {
	for begin := 0; begin < len(t.Steps); {
		end := begin + 1
		for end < len(t.Steps) && !t.Steps[end].First {
			end++
		}
		segment := t.Steps[begin:end]
		part, failure := decide.try(segment)
		if failure != nil {
			// The last step of the shortest prefix that panics is the one that panics.
			at := sort.Search(len(segment), func(n int) bool {
				_, failure := decide.try(segment[:n+1])
				return failure != nil
			})
			part, _ = decide.try(segment[:at])
			part = append(part, transcript.Difference{Step: at, Line: segment[at].Line, Time: segment[at].Input.Now,
				Recorded: segment[at].Decision,
				Now:      []string{fmt.Sprintf("(the core fails on this, which is a bug: %v)", failure)}})
			untried += len(segment) - at - 1
		}
		for i := range part {
			part[i].Step += begin
		}
		found = append(found, part...)
		begin = end
	}
	return found, untried
}

// try replays the steps in list. failure is the value of a panic; nil if there was none.
func (decide decider) try(list []transcript.Step) (found []transcript.Difference, failure any) {
	defer func() { failure = recover() }()
	return decide(&transcript.Transcript{Steps: list}), nil
}
