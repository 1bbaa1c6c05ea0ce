package manifeststore

import (
	"fmt"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
)

// Accept processes the newest text of an origin. Good documents replace the origin's previous documents; for a bad
// document, the last good version stays.
func (k *Keeper) Accept(name string, data []byte, now time.Time) {
	docs, err := k.reader.Read(data)
	if err != nil {
		k.Fail(name, err.Error(), now)
		return
	}
	a := newAcceptance(k, name, len(docs), now)
	for _, d := range docs {
		a.document(d)
	}
	a.keepOthers()
	a.refuseOthers()
	k.origins[name] = a.next
}

// acceptance is the processing of one text.
type acceptance struct {
	keeper     *Keeper
	name       string
	many       bool
	now        time.Time
	prev, next *origin
	// before has the entries of prev, the origin's previous state, by ID.
	before map[reader.ID]*entry
	// taken maps the IDs of the good documents to their numbers.
	taken map[reader.ID]int
	// bad has the errors of the bad documents with a readable name; anyBad is the error of the first bad document.
	bad    map[reader.ID]string
	anyBad string
}

func newAcceptance(k *Keeper, name string, documents int, now time.Time) *acceptance {
	a := &acceptance{
		keeper: k,
		name:   name,
		many:   documents > 1,
		now:    now,
		prev:   k.origins[name],
		next:   &origin{},
		before: map[reader.ID]*entry{},
		taken:  map[reader.ID]int{},
		bad:    map[reader.ID]string{},
	}
	if a.prev != nil {
		for _, e := range a.prev.entries {
			a.before[e.ID] = e
		}
	}
	return a
}

// document processes one document.
func (a *acceptance) document(d reader.Doc) {
	if len(d.Errors) > 0 {
		a.reject(d, d.Errors)
		return
	}
	if first, taken := a.taken[d.ID]; taken {
		a.addProblem(d, fmt.Sprintf(
			"%s isn't taken from here: document %d has the same name, and stays; rename or remove one of them", d.ID,
			first))
		return
	}
	e, wrong := a.entry(d)
	if len(wrong) > 0 {
		a.reject(d, wrong)
		return
	}
	a.taken[d.ID] = d.Number
	a.next.entries = append(a.next.entries, e)
}

// entry returns the entry of a document without errors, or the errors of its pod or object. Unchanged documents aren't
// processed again. The entry of a changed document has the first version of a new pod or object; later,
// Keeper.assignVersions sets the version that follows the previous one.
func (a *acceptance) entry(d reader.Doc) (*entry, []string) {
	before := a.before[d.ID]
	if before != nil && before.hash == d.Hash {
		e := before.asStale("")
		if e.document != d.Number || e.restored {
			next := *e
			next.document, next.restored = d.Number, false
			if e.restored {
				next.uid = a.keeper.entry(d, a.name).uid // in a record, a part of the UID's input is missing
			}
			e = &next
		}
		return e, nil
	}
	e := a.keeper.entry(d, a.name)
	made, wrong := a.keeper.complete(e, d, e.first(a.now))
	if len(wrong) > 0 {
		return nil, wrong
	}
	if before == nil {
		made.since = a.keeper.stamp(a.now)
		return made, nil
	}
	if before.object != nil {
		if wrong := d.Frozen(before.object.Object(), made.object.Object()); len(wrong) > 0 {
			return nil, wrong
		}
	}
	made.since = before.since
	return made, nil
}

// reject records that a document is bad.
func (a *acceptance) reject(d reader.Doc, wrong []string) {
	a.addProblem(d, strings.Join(wrong, "\n"))
	a.next.bad = true
	if a.anyBad == "" {
		a.anyBad = inBrief(wrong)
		if a.many {
			a.anyBad = fmt.Sprintf("nothing is removed while a document of the manifest is bad: document %d: %s",
				d.Number, a.anyBad)
		}
	}
	if d.Name != "" && a.bad[d.ID] == "" {
		a.bad[d.ID] = strings.Join(wrong, "; ")
	}
}

// inBrief is a short form of a document's errors. It is stored with each entry of the manifest that becomes stale.
func inBrief(wrong []string) string {
	if len(wrong) == 1 {
		return wrong[0]
	}
	return fmt.Sprintf("%s; and %d more", wrong[0], len(wrong)-1)
}

func (a *acceptance) addProblem(d reader.Doc, message string) {
	where := a.name
	if a.many {
		where += fmt.Sprintf(", document %d", d.Number)
	}
	podName := d.Name
	if d.Kind != "" {
		podName, message = "", about(d.ID, message)
	}
	a.next.problems = append(a.next.problems, a.keeper.problem(a.prev, where, podName, message, a.now))
}

// about returns the message, preceded by the ID of the document's object unless the message already begins with the ID.
func about(id reader.ID, message string) string {
	switch {
	case strings.HasPrefix(message, id.String()):
		return message
	case id.Name == "":
		return string(id.Kind) + ": " + message
	case strings.Contains(message, "\n"):
		return id.String() + ":\n" + message
	}
	return id.String() + ": " + message
}

// keepOthers keeps the previous entries that the new text doesn't have. It does so only if any document of the text is
// bad.
func (a *acceptance) keepOthers() {
	if a.anyBad == "" || a.prev == nil {
		return
	}
	for _, e := range a.prev.entries {
		if _, taken := a.taken[e.ID]; taken {
			continue
		}
		why := a.bad[e.ID]
		if why == "" {
			why = a.anyBad
		}
		a.next.entries = append(a.next.entries, e.asStale(why))
	}
}

// refuseOthers records the objects that can't be used and have no good version to keep.
func (a *acceptance) refuseOthers() {
	for id := range a.bad {
		_, hasPrevious := a.before[id]
		_, taken := a.taken[id]
		if key, ok := id.Object(); ok && !hasPrevious && !taken {
			a.next.refused = append(a.next.refused, key)
		}
	}
}
