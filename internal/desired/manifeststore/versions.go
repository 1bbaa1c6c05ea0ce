package manifeststore

import (
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
)

// assignVersions gives each wanted pod or object the version after the last reported version of its name; versions in
// between that were never reported don't count. It ignores origins, so that a pod continues to run if its manifest
// moves. It returns the edits of pods.
func (k *Keeper) assignVersions() []desired.Edit {
	var edits []desired.Edit
	wanted := k.wanted()
	for id, e := range wanted {
		reported := k.reported[id]
		if reported == nil {
			continue
		}
		remade := k.remade(reported, e)
		if reported.hash == e.hash && reported.version == e.version && !remade {
			continue
		}
		v, why := k.version(reported, e)
		if remade {
			v, why = e.first(e.version.Seen), ""
		}
		next := e
		if v != e.version {
			next = k.as(e, v)
		}
		if why != "" && next.desired != nil && next.desired.Replaces != why {
			next = next.replacing(why)
		}
		if next != e {
			wanted[id] = next
			k.origins[e.origin] = k.origins[e.origin].with(e, next)
		}
		if reported.hash != e.hash && next.desired != nil && !remade {
			edits = append(edits, desired.Edit{New: next.desired, Why: why})
		}
	}
	k.reported = wanted
	return edits
}

// remade reports whether a kubelet ran on this node after the previous agent reported the pod, and has created another
// pod from the current text. deckhand would apply, or has applied, that text as an edit in place.
func (k *Keeper) remade(reported, e *entry) bool {
	return e.Kind == "" && reported.restored && !e.restored && k.ran[e.uid] && !k.ran[reported.version.Base]
}

// wanted returns, by ID, the entries that take precedence, by the same rules as desired.Merger.
func (k *Keeper) wanted() map[reader.ID]*entry {
	wanted := make(map[reader.ID]*entry, len(k.reported))
	for _, o := range k.origins {
		for _, e := range o.entries {
			if other := wanted[e.ID]; other == nil || e.precedes(other) {
				wanted[e.ID] = e
			}
		}
	}
	return wanted
}

// replacing returns the entry with the reason why its pod replaces the previous pod of this name, instead of being
// edited in place.
func (e *entry) replacing(why string) *entry {
	next, d := *e, *e.desired
	d.Replaces = why
	next.desired = &d
	return &next
}

// version returns the version of e that follows the last reported entry of its name. If an edit makes e another pod or
// object, why is the reason why the edit couldn't be applied in place.
func (k *Keeper) version(reported, e *entry) (v reader.Version, why string) {
	if reported.hash == e.hash {
		return reported.version, ""
	}
	if reported.object != nil {
		if wrong := (reader.Doc{}).Frozen(reported.object.Object(), e.object.Object()); len(wrong) > 0 {
			return e.version, wrong[0] // another origin defines e, after the first origin was removed
		}
		return reported.version, ""
	}
	if ok, why := k.reader.InPlace(reported.canonical, e.canonical); !ok {
		return reported.version.Replace(e.uid, e.version.Seen), why
	}
	return reported.version.Edit(), ""
}

// with returns the origin with one entry replaced.
func (o *origin) with(old, new *entry) *origin {
	next := &origin{problems: o.problems, refused: o.refused, bad: o.bad, entries: make([]*entry, 0, len(o.entries))}
	for _, e := range o.entries {
		if e == old {
			e = new
		}
		next.entries = append(next.entries, e)
	}
	return next
}
