package manifeststore

import (
	"fmt"
	"maps"
	"strings"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
)

// Records returns a function that returns the records of the last reported state. It may be called at any later time,
// from any goroutine.
func (k *Keeper) Records() func() []Record {
	node, place := k.reader.Node(), k.place
	var entries []*entry
	for _, name := range k.Names() {
		entries = append(entries, k.origins[name].entries...)
	}
	return func() []Record {
		records := make([]Record, 0, len(entries))
		for _, e := range entries {
			records = append(records, e.record(node, place))
		}
		return records
	}
}

// Restore adds the state from before the agent's start, and the UIDs of the pods that have run on this node. It skips
// origins that the keeper already has. It returns an error, for users, for each pod or object that can't be restored.
func (k *Keeper) Restore(records []Record, ran map[string]bool) []error {
	k.ran = ran
	var failed []error
	restored := map[string]*origin{}
	for _, r := range records {
		if k.Has(r.Origin) {
			continue
		}
		e, err := k.restore(r)
		if err != nil {
			failed = append(failed, fmt.Errorf("the last good version of a %s of %s can't be used: %w", r.What(),
				r.Origin, err))
			continue
		}
		o := restored[r.Origin]
		if o == nil {
			o = &origin{}
			restored[r.Origin] = o
		}
		o.entries = append(o.entries, e)
		if e.desired != nil && ran[string(e.desired.Pod.UID)] {
			k.place = r.Place // otherwise nothing of the pod is left, for example after `deckhand down`
		}
	}
	maps.Copy(k.origins, restored)
	k.reported = k.wanted() // by the previous agent
	return failed
}

func (k *Keeper) restore(r Record) (*entry, error) {
	var d reader.Doc
	var err error
	if r.Kind != "" {
		d, err = k.reader.RestoreObject(r.Kind, r.Content)
	} else {
		d, err = k.reader.Restore(r.Content)
	}
	if err != nil {
		return nil, err
	}
	e := k.entry(d, r.Origin)
	e.document, e.since, e.restored = r.Document, r.Since, true
	v := e.first(r.Seen)
	if r.Node == k.reader.Node() && r.Kind == "" { // otherwise the pod gets another UID: no two nodes may use the same
		v.Base, v.Generation = r.Base, r.Generation
	} else if r.Node == "" && r.Kind == "" { // a record of format 1, in which the content hash was the UID
		v.Base = d.Hash
	}
	made, wrong := k.complete(e, d, v)
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s: %s", d.ID, strings.Join(wrong, "; "))
	}
	if r.Since.After(k.newest) {
		k.newest = r.Since
	}
	return made.asStale(r.Stale), nil
}
