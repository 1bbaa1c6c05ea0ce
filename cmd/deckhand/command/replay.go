package command

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

// maxFile is the maximum size of a transcript in bytes: twice the maximum of --journal-bytes, because a pod needs
// more space in a file than in memory.
const maxFile = 128 << 20

// readTranscript reads a transcript from a file, or from stdin if path is "-". Errors name the file and, if the text
// is invalid, the line.
func readTranscript(path string, stdin io.Reader) (*transcript.Transcript, error) {
	return read(path, stdin, maxFile)
}

func read(path string, stdin io.Reader, limit int64) (*transcript.Transcript, error) {
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
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", transcriptName(path), terminal.Line(err.Error()))
	}
	return t, nil
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

// printReplay replays all decisions and prints the differences and the number of steps. It reports whether there are
// no differences.
func printReplay(out io.Writer, name string, t *transcript.Transcript) (same bool, err error) {
	found, untried := decider(transcript.Replay).differences(t)
	name = terminal.Keep(name)
	var text strings.Builder
	for i := range found {
		d := &found[i]
		fmt.Fprintf(&text, "%s:%d: step %d, at %s:\n", name, d.Line, d.Step+1, d.Time.UTC().Format(time.RFC3339Nano))
		for _, line := range d.Recorded {
			text.WriteString("- " + terminal.Keep(line) + "\n")
		}
		for _, line := range d.Now {
			text.WriteString("+ " + terminal.Keep(line) + "\n")
		}
	}
	incomplete, why := 0, ""
	for i := range t.Steps {
		if s := &t.Steps[i]; s.Incomplete != "" {
			incomplete++
			why = s.Incomplete
		}
	}
	if len(found) > 0 {
		text.WriteString("\n")
	}
	fmt.Fprintf(&text, "%s: %s replayed, ", name, steps(len(t.Steps)-incomplete-untried))
	if len(found) == 0 {
		text.WriteString("all decided as they were\n")
	} else {
		fmt.Fprintf(&text, "%d decided otherwise today (- recorded, + today)\n", len(found))
	}
	if incomplete > 0 {
		fmt.Fprintf(&text, "%s: %s could not be replayed: %s\n", name, steps(incomplete), terminal.Line(why))
	}
	if untried > 0 {
		fmt.Fprintf(&text, "%s: %s could not be replayed after one that fails\n", name, steps(untried))
	}
	_, err = io.WriteString(out, text.String())
	return len(found) == 0, err
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
