// Package lastgood is what one source knows: of each origin (a file, a URL) the
// newest good version of each pod, and what is wrong with the newest text.
//
// Bad input loses nothing. A text that can't be read or used keeps the pods that
// the origin had, marked stale. As long as one document of a text is bad, no pod
// the origin had goes away: a text that was cut short looks just like one from which
// documents were removed.
//
// It also knows which version of which pod each is (see static.Version): a good text
// is compared with what was told of the pod of that name last, to be applied in place if it
// can be.
package lastgood

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/checkpoint"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/static"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Keeper holds the last good pods of one source. It does no I/O and is not safe
// for concurrent use: its source owns it.
type Keeper struct {
	reader  *reader.Reader
	origins map[string]*origin
	// notes are problems of the source itself, by what they are about.
	notes map[string]pod.Problem
	// told is what was reported last, by name; of several claims to a name the best.
	told map[string]*entry
	// newest is the newest time given to a claim.
	newest time.Time
}

// origin is one file or URL. It is replaced as a whole, never changed.
type origin struct {
	entries  []*entry
	problems []pod.Problem
	// bad says that the newest text, or a part of it, couldn't be used.
	bad bool
}

// entry is one good pod. It is never changed.
type entry struct {
	// name is "namespace/name" as written.
	name      string
	document  int
	hash      string
	canonical []byte
	since     time.Time
	version   static.Version
	desired   *pod.Desired
}

// New returns a keeper that knows nothing yet.
func New(r *reader.Reader) *Keeper {
	return &Keeper{
		reader:  r,
		origins: map[string]*origin{},
		notes:   map[string]pod.Problem{},
		told:    map[string]*entry{},
	}
}

// Fail tells that an origin's text couldn't be had or used, and why. Its pods stay.
func (k *Keeper) Fail(name, why string, now time.Time) {
	prev := k.origins[name]
	next := &origin{bad: true, problems: []pod.Problem{k.problem(prev, name, "", why, now)}}
	if prev != nil {
		for _, e := range prev.entries {
			next.entries = append(next.entries, e.asStale(why))
		}
	}
	k.origins[name] = next
}

// Forget tells that an origin is gone for good, and its pods with it, but for those
// that another origin claims as well.
func (k *Keeper) Forget(name string) { delete(k.origins, name) }

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
	k.notes[topic] = pod.Problem{Source: k.reader.Source(), Origin: origin, Message: why, Since: now}
	return true
}

// Report returns everything the source has to say. It is to be told: what comes later
// is compared with it.
func (k *Keeper) Report() desired.Report {
	r := desired.Report{Source: k.reader.Source(), Edits: k.settle()}
	for _, topic := range slices.Sorted(maps.Keys(k.notes)) {
		r.Problems = append(r.Problems, k.notes[topic])
	}
	r.Claims = make([]desired.Claim, 0, len(k.origins))
	for _, name := range k.Names() {
		o := k.origins[name]
		r.Problems = append(r.Problems, o.problems...)
		for _, e := range o.entries {
			r.Claims = append(r.Claims, desired.Claim{Desired: e.desired, Document: e.document, Since: e.since})
		}
	}
	return r
}

// Records returns a function that makes the records of what was reported last. It may
// be called at any later time, from any goroutine.
func (k *Keeper) Records() func() []checkpoint.Record {
	node := k.reader.Node()
	var entries []*entry
	for _, name := range k.Names() {
		entries = append(entries, k.origins[name].entries...)
	}
	return func() []checkpoint.Record {
		records := make([]checkpoint.Record, 0, len(entries))
		for _, e := range entries {
			records = append(records, checkpoint.Record{
				Origin:     e.desired.Origin,
				Document:   e.document,
				Pod:        e.canonical,
				Since:      e.since,
				Seen:       e.version.Seen,
				Base:       e.version.Base,
				Generation: e.version.Generation,
				Node:       node,
				Stale:      e.desired.Stale,
			})
		}
		return records
	}
}

// Restore takes over what was kept before the agent started. Origins that are
// known already are left alone. It returns an error, for a person, for each pod
// that can't be had back.
func (k *Keeper) Restore(records []checkpoint.Record) []error {
	var failed []error
	restored := map[string]*origin{}
	for _, r := range records {
		if k.Has(r.Origin) {
			continue
		}
		e, err := k.restore(r)
		if err != nil {
			failed = append(failed, fmt.Errorf("the last good version of a pod of %s can't be used: %w", r.Origin, err))
			continue
		}
		o := restored[r.Origin]
		if o == nil {
			o = &origin{}
			restored[r.Origin] = o
		}
		o.entries = append(o.entries, e)
	}
	for name, o := range restored {
		k.origins[name] = o
	}
	k.told = k.wanted() // by the agent before
	return failed
}

func (k *Keeper) restore(r checkpoint.Record) (*entry, error) {
	d, err := k.reader.Restore(r.Pod)
	if err != nil {
		return nil, err
	}
	v := static.First(d.Hash, r.Seen)
	if r.Node == k.reader.Node() { // else it has another UID here, as no two nodes may have the same
		v.Base, v.Generation = r.Base, r.Generation
	}
	p, wrong := k.reader.Complete(d, v)
	if len(wrong) > 0 {
		return nil, fmt.Errorf("pod %s: %s", d.Name, strings.Join(wrong, "; "))
	}
	if r.Since.After(k.newest) {
		k.newest = r.Since
	}
	return &entry{
		name:      d.Name,
		document:  r.Document,
		hash:      d.Hash,
		canonical: d.Canonical,
		since:     r.Since,
		version:   v,
		desired:   &pod.Desired{Pod: p, Source: k.reader.Source(), Origin: r.Origin, Stale: r.Stale, Base: v.Base},
	}, nil
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

// asStale returns the entry with why it isn't up to date; empty for up to date.
// An entry that needs no change is returned as it is, with its pointers.
func (e *entry) asStale(why string) *entry {
	if e.desired.Stale == why {
		return e
	}
	next, d := *e, *e.desired
	d.Stale = why
	next.desired = &d
	return &next
}
