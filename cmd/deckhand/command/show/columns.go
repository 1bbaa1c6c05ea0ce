package show

import (
	"strconv"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// column is one column of the table.
type column struct {
	title string
	cell  func(*local.Event) string
}

// columnsFor returns the columns for these options.
func columnsFor(opts EventOptions) []column {
	namespace := column{"NAMESPACE", func(e *local.Event) string { return orNone(e.Namespace) }}
	last := column{"LAST SEEN", func(e *local.Event) string { return podstatus.Since(e.Time, opts.Now()) }}
	first := column{"FIRST SEEN", func(e *local.Event) string { return podstatus.Since(e.First, opts.Now()) }}
	count := column{"COUNT", func(e *local.Event) string { return strconv.Itoa(e.Count) }}
	kind := column{"TYPE", func(e *local.Event) string { return e.Type }}
	reason := column{"REASON", func(e *local.Event) string { return e.Reason }}
	object := column{"OBJECT", func(e *local.Event) string { return e.Object }}
	part := column{"PART", func(e *local.Event) string { return orNone(e.Part) }}
	source := column{"SOURCE", func(e *local.Event) string { return orNone(e.Component) }}
	message := column{"MESSAGE", func(e *local.Event) string { return e.Message }}

	columns := []column{last, count, kind, reason, object, message}
	if opts.Format == "wide" {
		columns = []column{last, first, count, kind, reason, object, part, source, message}
	}
	if opts.Namespace == "" {
		columns = append([]column{namespace}, columns...)
	}
	return columns
}

func (l *EventList) header() []string {
	row := make([]string, len(l.columns))
	for i, c := range l.columns {
		row[i] = c.title
	}
	return row
}

func (l *EventList) rows(events []local.Event) [][]string {
	rows := make([][]string, len(events))
	for i := range events {
		rows[i] = make([]string, len(l.columns))
		for j, c := range l.columns {
			rows[i][j] = c.cell(&events[i])
		}
	}
	return rows
}
