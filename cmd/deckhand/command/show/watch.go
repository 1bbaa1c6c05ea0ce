package show

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// shown is the last printed state of a pod.
type shown struct {
	view  local.PodView
	state string
}

// Watch prints the pods and then, as kubectl does, a row for each change, until snapshots ends with an error, which
// it returns.
func (l *PodList) Watch(out io.Writer, snapshots iter.Seq2[local.Snapshot, error]) error {
	last := map[string]shown{}
	header := !l.opts.NoHeaders
	for snapshot, err := range snapshots {
		if err != nil {
			return err
		}
		views, _ := l.Choose(snapshot) // errors are ignored: a pod that is missing now may exist later
		changed, gone := l.compare(last, views)
		if len(changed)+len(gone) == 0 {
			continue
		}
		if err := l.changes(out, changed, gone, header); err != nil {
			return err
		}
		header = false
	}
	return nil
}

// compare compares views with last, the pods printed last, and updates last. It returns the pods that have changed or
// are new, and those that are gone.
func (l *PodList) compare(last map[string]shown, views []local.PodView) (changed, gone []local.PodView) {
	seen := map[string]bool{}
	for _, view := range views {
		key := view.Pod.Namespace + "/" + view.Pod.Name
		seen[key] = true
		state := l.state(&view)
		if before, ok := last[key]; !ok || before.state != state {
			changed = append(changed, view)
		}
		last[key] = shown{view, state}
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if !seen[key] {
			gone = append(gone, last[key].view)
			delete(last, key)
		}
	}
	return changed, gone
}

// state returns a string that changes whenever the pod has to be printed again.
func (l *PodList) state(view *local.PodView) string {
	if l.machine() {
		if text, err := json.Marshal(view.Pod); err == nil {
			return string(text)
		}
	}
	row := l.rows.pod(view)
	// The age and the time since the last restart change all the time.
	restarts := l.rows.restartsColumn()
	row[restarts], row[restarts+1] = fmt.Sprint(podstatus.RestartCount(view.Pod)), ""
	return strings.Join(row, "\x00")
}

func (l *PodList) changes(out io.Writer, changed, gone []local.PodView, header bool) error {
	switch {
	case l.opts.Format == "name":
		return writeNames(out, changed)
	case l.machine():
		return documents(out, l.opts.Format, wholePods(changed), header)
	}
	var rows [][]string
	if header {
		rows = append(rows, l.rows.header())
	}
	rows = append(rows, l.podRows(changed)...)
	for i := range gone {
		rows = append(rows, l.rows.gone(&gone[i]))
	}
	return l.rows.Write(out, rows...)
}
