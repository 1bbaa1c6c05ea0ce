// Package manifeststore keeps the last good state of a source. A Keeper has, for each origin (a file, a URL), the
// newest good version of each pod and other object, and the problems of the newest text. A Store keeps that on disk, so
// that pods continue to run after kill -9 or a reboot even if their manifest is bad or unreachable by then.
//
// Bad input loses nothing: if a text can't be used, the origin's pods and objects stay, marked as stale. As long as one
// document of a text is bad, nothing of the origin is removed, because a truncated text can't be distinguished from a
// text from which documents were removed.
//
// A good text is compared with the last version of the pod of that name, and applied in place if possible (see
// reader.Version).
package manifeststore

import (
	"maps"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Keeper holds the last good pods and objects of one source. It does no I/O and isn't safe for concurrent use: it
// belongs to its source.
type Keeper struct {
	reader  *reader.Reader
	origins map[string]*origin
	// notes are problems of the source itself, by topic.
	notes map[string]pod.Problem
	// reported holds, by name, the entries of the last report. If there are several entries with the same name, it
	// holds only the entry that takes precedence.
	reported map[reader.ID]*entry
	// ran has the UIDs of the pods that had run on this node when the agent started.
	ran map[string]bool
	// newest is the latest time of any claim so far.
	newest time.Time
	// place is the location that Place returns.
	place string
}

// origin is the state of one file or URL. It is replaced as a whole, never changed.
type origin struct {
	entries  []*entry
	problems []pod.Problem
	// refused are the objects that the newest text defines but that couldn't be used and have no earlier good
	// version.
	refused []object.Key
	// bad says that the newest text, or a part of it, couldn't be used.
	bad bool
}

// New returns an empty keeper.
func New(r *reader.Reader) *Keeper {
	return &Keeper{
		reader:   r,
		origins:  map[string]*origin{},
		notes:    map[string]pod.Problem{},
		reported: map[reader.ID]*entry{},
	}
}

// Fail records that an origin's text couldn't be read or used, and why. The origin's pods and objects stay.
func (k *Keeper) Fail(name, why string, now time.Time) {
	prev := k.origins[name]
	next := &origin{bad: true, problems: []pod.Problem{k.problem(prev, name, "", why, now)}}
	if prev != nil {
		next.refused = prev.refused
		for _, e := range prev.entries {
			next.entries = append(next.entries, e.asStale(why))
		}
	}
	k.origins[name] = next
}

// Unreadable marks everything of an origin as stale because its text isn't accessible any more. It reports whether
// that changed anything.
func (k *Keeper) Unreadable(name, why string) bool {
	prev := k.origins[name]
	if prev == nil || !slices.ContainsFunc(prev.entries, func(e *entry) bool { return e.stale() != why }) {
		return false
	}
	next := *prev
	next.entries = make([]*entry, len(prev.entries))
	for i, e := range prev.entries {
		next.entries[i] = e.asStale(why)
	}
	k.origins[name] = &next
	return true
}

// Place identifies the location from which the origins were read, in a form that the source defines. It is empty if the
// location is unknown, or if none of the pods from there runs.
func (k *Keeper) Place() string { return k.place }

// SetPlace sets Place.
func (k *Keeper) SetPlace(place string) { k.place = place }

// Forget drops an origin that was removed, with its pods and objects, except those that another origin also claims.
func (k *Keeper) Forget(name string) { delete(k.origins, name) }

// Delete is like Forget. In addition, if a pod or object that only this origin defined is defined again later, it
// counts as a new one.
func (k *Keeper) Delete(name string) {
	gone := k.origins[name]
	k.Forget(name)
	if gone == nil {
		return
	}
	left := k.wanted()
	for _, e := range gone.entries {
		if left[e.ID] == nil {
			delete(k.reported, e.ID)
		}
	}
}

// Has reports whether the keeper has an origin.
func (k *Keeper) Has(name string) bool { return k.origins[name] != nil }

// Good reports whether the newest text of an origin was used completely.
func (k *Keeper) Good(name string) bool {
	o := k.origins[name]
	return o != nil && !o.bad
}

// Names returns the names of all origins, sorted.
func (k *Keeper) Names() []string { return slices.Sorted(maps.Keys(k.origins)) }

// Note sets the source's own problem about topic, or removes it if why is empty, and reports whether that changed
// anything. origin is the problem's origin.
func (k *Keeper) Note(topic, origin, why string, now time.Time) bool {
	old, had := k.notes[topic]
	switch {
	case why == "":
		delete(k.notes, topic)
		return had
	case had && old.Message == why && old.Origin == origin:
		return false
	}
	k.notes[topic] = pod.Problem{Source: k.reader.Source(), Origin: origin, Message: why, Since: now, General: true}
	return true
}

// Report returns the complete state of the source. The caller must report it, because later states are compared with
// it.
func (k *Keeper) Report() desired.Report {
	r := desired.Report{Source: k.reader.Source(), Edits: k.assignVersions()}
	for _, topic := range slices.Sorted(maps.Keys(k.notes)) {
		r.Problems = append(r.Problems, k.notes[topic])
	}
	r.Claims = make([]desired.Claim, 0, len(k.origins))
	for _, name := range k.Names() {
		o := k.origins[name]
		r.Problems = append(r.Problems, o.problems...)
		for _, key := range o.refused {
			if r.Refused == nil {
				r.Refused = map[object.Key]string{}
			}
			r.Refused[key] = name
		}
		for _, e := range o.entries {
			if e.object != nil {
				r.Objects = append(r.Objects,
					desired.ObjectClaim{Object: e.object, Document: e.document, Since: e.since})
				continue
			}
			r.Claims = append(r.Claims, desired.Claim{Desired: e.desired, Document: e.document, Since: e.since})
		}
	}
	return r
}

// stamp is the time of a new claim: now, but never before an earlier claim. The clock may be set back (on a board
// without a battery, it is wrong until NTP has set it). Then a new claim must not take a name from its holder.
func (k *Keeper) stamp(now time.Time) time.Time {
	if now.Before(k.newest) {
		now = k.newest.Add(1)
	}
	k.newest = now
	return now
}

// problem returns a problem. If prev, the origin's previous state, has the same problem, the problem keeps its earlier
// time; otherwise its time is now.
func (k *Keeper) problem(prev *origin, where, podName, message string, now time.Time) pod.Problem {
	p := pod.Problem{Source: k.reader.Source(), Origin: where, Pod: podName, Message: message, Since: now}
	if prev == nil {
		return p
	}
	for _, old := range prev.problems {
		if old.Origin == where && old.Pod == podName && old.Message == message {
			p.Since = old.Since
		}
	}
	return p
}
