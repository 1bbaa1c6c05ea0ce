package transcript

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// appendResult writes the result of an action. A pending action is written as a reference, any other action with all
// its fields. The result's time is written if it isn't now.
func appendResult(dst []byte, r *pod.Result, pending []pod.Action, now, base time.Time) []byte {
	f := formats()
	dst = append(dst, inputLead+resultWord...)
	known := *r
	// A container may have the name of a keyword; then its action is also written with all fields.
	if at := findOf(pending, r.Action.Kind, r.Action.Container, r.Action.ID); at >= 0 &&
		!meansResult(r.Action.Container) && find(pending[at:at+1], &r.Action) == 0 {
		dst = f.action.AppendHead(dst, words.At(&known.Action), base)
		if r.Action.ID != "" {
			dst = words.AppendString(append(dst, " "+ofWord...), r.Action.ID)
		}
		known.Action = pod.Action{}
	}
	if r.Failure != nil {
		dst = append(dst, " "+failedWord+" "...)
		dst = words.AppendString(dst, string(r.Failure.Reason))
		dst = strconv.AppendQuote(append(dst, ' '), r.Failure.Message)
		rest := *r.Failure
		rest.Reason, rest.Message = "", ""
		known.Failure = &rest
		if f.failure.Zero(words.At(&rest)) {
			known.Failure = nil
		}
	}
	switch {
	case r.At.IsZero():
		dst = append(dst, " at=-"...)
	case r.At.Equal(now):
		known.At = time.Time{}
	}
	return append(f.result.AppendFields(dst, words.At(&known), words.Value{}, base), '\n')
}

// meansResult reports whether a word is a keyword or flag of a result.
func meansResult(word string) bool { return word == failedWord || formats().result.IsFlag(word) }

// parseResult parses the words after the keyword result.
func parseResult(list []string, pending []pod.Action, now, base time.Time) (pod.Result, error) {
	r := pod.Result{At: now}
	failure, list, err := takeFailure(list)
	if err != nil {
		return r, err
	}
	kind, container, id, list, err := takeAction(list)
	if err != nil {
		return r, err
	}
	if kind != "" || container != "" || id != "" {
		at := findOf(pending, kindOf(kind), container, id)
		if at < 0 {
			return r, fmt.Errorf("no such action is under way: %s", strings.TrimSpace(kind+" "+container+" "+id))
		}
		r.Action = pending[at]
	}
	if err := formats().result.Set(words.At(&r), list, base); err != nil {
		return r, err
	}
	if failure != nil {
		if r.Failure == nil {
			r.Failure = &pod.Failure{}
		}
		r.Failure.Reason, r.Failure.Message = failure.Reason, failure.Message
	}
	return r, nil
}

// takeFailure removes `failed REASON "message"` from the words.
func takeFailure(list []string) (*pod.Failure, []string, error) {
	for i, word := range list {
		if word != failedWord {
			continue
		}
		if len(list) < i+3 {
			return nil, nil, errors.New(`failed is followed by a reason and a "message"`)
		}
		reason, err := words.Unquote(list[i+1])
		if err != nil {
			return nil, nil, err
		}
		message, err := words.Unquote(list[i+2])
		rest := append(append([]string(nil), list[:i]...), list[i+3:]...)
		return &pod.Failure{Reason: pod.Reason(reason), Message: message}, rest, err
	}
	return nil, list, nil
}

// takeAction removes KIND, CONTAINER and of=ID, each if present, from the beginning of the words.
func takeAction(list []string) (kind, container, id string, rest []string, err error) {
	for _, to := range []*string{&kind, &container} {
		if len(list) == 0 || list[0][0] != '"' && (strings.Contains(list[0], "=") || meansResult(list[0])) {
			break
		}
		if *to, err = words.Unquote(list[0]); err != nil {
			return "", "", "", nil, err
		}
		list = list[1:]
	}
	if len(list) > 0 && strings.HasPrefix(list[0], ofWord) {
		if id, err = words.Unquote(strings.TrimPrefix(list[0], ofWord)); err != nil {
			return "", "", "", nil, err
		}
		list = list[1:]
	}
	return kind, container, id, list, nil
}
