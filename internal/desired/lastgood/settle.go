package lastgood

import (
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/static"
)

// settle finds out which version of which pod or object each wanted one is, by what was told of
// that name last; what came and went in between nobody has seen. Origins play no part in
// that, so that a pod whose manifest moves goes on. It returns the edits of pods.
func (k *Keeper) settle() []desired.Edit {
	var edits []desired.Edit
	wanted := k.wanted()
	for id, e := range wanted {
		told := k.told[id]
		if told == nil || told.hash == e.hash && told.version == e.version {
			continue
		}
		next, why := k.succeed(told, e)
		if why != "" && next.desired != nil && next.desired.Replaces != why {
			next = next.replacing(why)
		}
		if next != e {
			wanted[id] = next
			k.origins[e.origin] = k.origins[e.origin].with(e, next)
		}
		if told.hash != e.hash && next.desired != nil {
			edits = append(edits, desired.Edit{New: next.desired, Why: why})
		}
	}
	k.told = wanted
	return edits
}

// wanted returns by name the entries with the best right to it, as desired.Merger
// sees that.
func (k *Keeper) wanted() map[reader.ID]*entry {
	wanted := make(map[reader.ID]*entry, len(k.told))
	for _, o := range k.origins {
		for _, e := range o.entries {
			if other := wanted[e.ID]; other == nil || e.precedes(other) {
				wanted[e.ID] = e
			}
		}
	}
	return wanted
}

// succeed returns e as the successor of what was told of its name before. If it is
// another pod or object by an edit, why says what stood in the way of applying that in place.
func (k *Keeper) succeed(told, e *entry) (next *entry, why string) {
	d, err := k.read(e.Kind, e.canonical)
	if err != nil {
		return e, err.Error() // which can't be: it was made of that
	}
	v, why := k.version(told, e, d)
	if v == e.version {
		return e, why
	}
	next, wrong := k.complete(*e, d, v, e.stale())
	if len(wrong) > 0 {
		return e, why // which can't be either: it was complete before
	}
	return next, why
}

// replacing returns the entry with why the pod before couldn't become it.
func (e *entry) replacing(why string) *entry {
	next, d := *e, *e.desired
	d.Replaces = why
	next.desired = &d
	return &next
}

// version returns which version e, of which d was read back, is after what was told.
func (k *Keeper) version(told, e *entry, d reader.Doc) (v static.Version, why string) {
	if told.hash == e.hash {
		return told.version, ""
	}
	if told.object != nil {
		if wrong := k.reader.Frozen(told.object.Object(), d); len(wrong) > 0 {
			return e.version, wrong[0] // defined elsewhere, once that the other one is gone
		}
		return told.version, ""
	}
	if ok, why := k.reader.InPlace(told.canonical, d); !ok {
		return told.version.Replace(e.hash, e.version.Seen), why
	}
	return told.version.Edit(), ""
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
