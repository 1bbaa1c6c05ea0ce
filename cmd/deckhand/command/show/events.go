package show

import (
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// EventOptions select events, and their output format.
type EventOptions struct {
	// Format is json, yaml, wide, a format that CheckFormat accepts, or empty for the plain table.
	Format string
	// Namespace restricts the events to those about objects in this namespace; all if empty.
	Namespace string
	// Types restricts the events to these types, in any case; all if empty.
	Types []string
	// Pod restricts the events to those about a pod of this name; all if empty.
	Pod types.NamespacedName
	// Since restricts the events to those that occurred at that time or later; all if zero.
	Since time.Time
	// Fields restricts the events by their fields, unless it is nil.
	Fields fields.Selector
	// SortBy is the path of the field to sort by; if empty, the newest is last.
	SortBy string
	// Width is the number of characters after which lines of the plain table are cut; 0 means no limit.
	Width int
	Now   func() time.Time
}

// EventList prints events in one of the formats.
type EventList struct {
	opts    EventOptions
	columns []column
	table   Table
}

// NewEventList returns an EventList.
func NewEventList(opts EventOptions) *EventList {
	l := &EventList{opts: opts, columns: columnsFor(opts)}
	if opts.Format != "wide" {
		l.table.MaxWidth = opts.Width
	}
	return l
}

// FindEventPod returns the name of the one pod that name means. It searches existing pods and the pods of events.
func FindEventPod(s local.Snapshot, events []local.Event, namespace, name string) (types.NamespacedName, error) {
	known := map[types.NamespacedName]bool{}
	for _, view := range s.Pods {
		known[types.NamespacedName{Namespace: view.Pod.Namespace, Name: view.Pod.Name}] = true
	}
	s.Pods = slices.Clone(s.Pods)
	for i := range events {
		own, ok := events[i].PodName()
		id := types.NamespacedName{Namespace: events[i].Namespace, Name: own}
		if !ok || known[id] {
			continue
		}
		known[id] = true
		p := &v1.Pod{}
		p.Namespace, p.Name = id.Namespace, id.Name
		s.Pods = append(s.Pods, local.PodView{Pod: p})
	}
	p, err := FindPod(s, namespace, name)
	if err != nil {
		return types.NamespacedName{}, err
	}
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, nil
}

// Choose returns the selected events, sorted as requested.
func (l *EventList) Choose(events []local.Event) ([]local.Event, error) {
	events = slices.DeleteFunc(slices.Clone(events), func(e local.Event) bool { return !l.wanted(&e) })
	if l.opts.SortBy == "" {
		return events, nil
	}
	return events, sortBy(events, l.opts.SortBy, func(e local.Event) any { return apiEvents([]local.Event{e})[0] })
}

func (l *EventList) wanted(e *local.Event) bool {
	if l.opts.Namespace != "" && e.Namespace != l.opts.Namespace || e.Time.Before(l.opts.Since) {
		return false
	}
	if l.opts.Fields != nil && !l.opts.Fields.Matches(eventFields(apiEvents([]local.Event{*e})[0])) {
		return false
	}
	isType := func(t string) bool { return strings.EqualFold(t, e.Type) }
	if len(l.opts.Types) > 0 && !slices.ContainsFunc(l.opts.Types, isType) {
		return false
	}
	if l.opts.Pod.Name == "" {
		return true
	}
	name, ok := e.PodName()
	return ok && name == l.opts.Pod.Name && e.Namespace == l.opts.Pod.Namespace
}

// machine reports whether the output is for programs.
func (l *EventList) machine() bool { return l.opts.Format != "" && l.opts.Format != "wide" }

// apiEvents converts events to API objects. Their sequence number is the resource version.
func apiEvents(events []local.Event) []*v1.Event {
	list := make([]*v1.Event, len(events))
	for i := range events {
		e := &events[i]
		word, name, _ := strings.Cut(e.Object, "/")
		kind := map[string]string{"pod": "Pod", "node": "Node"}[word]
		if kind == "" {
			name = e.Object // a path or a URL
		}
		list[i] = &v1.Event{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s.%x", name[strings.LastIndex(name, "/")+1:], e.Seq), Namespace: e.Namespace,
				ResourceVersion: strconv.FormatUint(e.Seq, 10),
			},
			InvolvedObject: v1.ObjectReference{Kind: kind, Namespace: e.Namespace, Name: name, UID: e.UID,
				FieldPath: e.Part},
			Reason: e.Reason, Message: e.Message, Type: string(e.Type), Count: int32(e.Count),
			FirstTimestamp: metav1.NewTime(e.First), LastTimestamp: metav1.NewTime(e.Time),
			Source: v1.EventSource{Component: e.Component},
		}
	}
	return list
}

// Print prints events.
func (l *EventList) Print(out io.Writer, events []local.Event) error {
	if l.machine() {
		_, err := As(out, l.opts.Format, ListOf(apiEvents(events)))
		return err
	}
	return l.table.Write(out, append([][]string{l.header()}, l.rows(events)...)...)
}

// Watch prints the selected events as they occur, until lists ends with an error, which it returns.
func (l *EventList) Watch(out io.Writer, lists iter.Seq2[[]local.Event, error]) error {
	printed := false
	for events, err := range lists {
		if err != nil {
			return err
		}
		events, err = l.Choose(events)
		switch {
		case err != nil:
		case len(events) == 0:
			continue
		case l.machine():
			err = documents(out, l.opts.Format, apiEvents(events), !printed)
		case printed:
			err = l.table.Write(out, l.rows(events)...)
		default:
			err = l.Print(out, events)
		}
		if err != nil {
			return err
		}
		printed = true
	}
	return nil
}

// EventFields are the fields of events that --field-selector supports: those of the API.
var EventFields = []string{"metadata.name", "metadata.namespace", "involvedObject.kind", "involvedObject.namespace",
	"involvedObject.name", "involvedObject.uid",
	"involvedObject.fieldPath", "reason", "source", "type"}

func eventFields(e *v1.Event) fields.Set {
	return fields.Set{
		"metadata.name": e.Name, "metadata.namespace": e.Namespace, "involvedObject.kind": e.InvolvedObject.Kind,
		"involvedObject.namespace": e.InvolvedObject.Namespace,
		"involvedObject.name":      e.InvolvedObject.Name, "involvedObject.uid": string(e.InvolvedObject.UID),
		"involvedObject.fieldPath": e.InvolvedObject.FieldPath,
		"reason":                   e.Reason, "source": e.Source.Component, "type": e.Type,
	}
}
