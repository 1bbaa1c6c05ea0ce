// Package manifeststore keeps what one source last wanted. A Keeper knows of each origin (a
// file, a URL) the newest good version of each pod and other object, and what is wrong with the
// newest text; a Store keeps that on disk, so that pods run on after kill -9 or a reboot even
// if their manifest is bad or out of reach by then.
//
// Bad input loses nothing: a text that can't be used keeps the pods and objects that the origin
// had, marked stale. As long as one document of a text is bad, nothing the origin had goes
// away, since a text that was cut short looks just like one from which documents were removed.
//
// A good text is compared with the last version of the pod of that name, to be applied in place
// if possible (see reader.Version).
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

// Keeper holds the last good pods and objects of one source. It does no I/O and is not safe
// for concurrent use: its source owns it.
type Keeper struct {
	reader  *reader.Reader
	origins map[string]*origin
	// notes are problems of the source itself, by what they are about.
	notes map[string]pod.Problem
	// reported is what was reported last, by name; of several claims to a name the best.
	reported map[reader.ID]*entry
	// ran are the UIDs of the pods that had run on this node when the agent started.
	ran map[string]bool
	// newest is the newest time given to a claim.
	newest time.Time
	// place is Place.
	place string
}

// origin is one file or URL. It is replaced as a whole, never changed.
type origin struct {
	entries  []*entry
	problems []pod.Problem
	// refused are the objects that the newest text defines and that couldn't be used, of which
	// there is no good version before.
	refused []object.Key
	// bad says that the newest text, or a part of it, couldn't be used.
	bad bool
}

// New returns a keeper that knows nothing yet.
func New(r *reader.Reader) *Keeper {
	return &Keeper{
		reader:   r,
		origins:  map[string]*origin{},
		notes:    map[string]pod.Problem{},
		reported: map[reader.ID]*entry{},
	}
}

// Fail notes that an origin's text couldn't be had or used, and why. What it had stays.
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

// Unreadable keeps what an origin had, stale, though nothing is known of its text any more, and reports whether that
// changed anything.
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

// Place identifies where the origins were read, in terms of the source; empty if that isn't known, or nothing of that
// runs.
func (k *Keeper) Place() string { return k.place }

// SetPlace sets Place.
func (k *Keeper) SetPlace(place string) { k.place = place }

// Forget drops an origin that is gone for good, and what it had, but for what
// another origin claims as well.
func (k *Keeper) Forget(name string) { delete(k.origins, name) }

// Delete is Forget, but what only this origin had is something new if it is had again.
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

// Has reports whether anything is known of an origin.
func (k *Keeper) Has(name string) bool { return k.origins[name] != nil }

// Good reports whether the newest text of an origin could be used in full.
func (k *Keeper) Good(name string) bool {
	o := k.origins[name]
	return o != nil && !o.bad
}

// Names returns the names of all origins, sorted.
func (k *Keeper) Names() []string { return slices.Sorted(maps.Keys(k.origins)) }

// Note sets the problem of the source itself about topic, or removes it if why is
// empty, and reports whether that changed anything. Origin says where.
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

// Report returns everything the source has to say. The caller must
// report it: what comes later is compared with it.
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

// stamp is the time for a new claim: now, but never before an earlier claim's, as
// a clock set back (a board without a battery, before NTP) must not take a name from
// who has it.
func (k *Keeper) stamp(now time.Time) time.Time {
	if now.Before(k.newest) {
		now = k.newest.Add(1)
	}
	k.newest = now
	return now
}

// problem makes a problem. One that prev had too keeps its time.
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
