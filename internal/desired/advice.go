package desired

import (
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// openSecrets warns about manifest files that define Secrets and have a mode that gives access to other users than
// their owner. It warns once per file, until the mode is corrected.
type openSecrets struct{ reported map[string]bool }

// check checks the files of a set, and returns an event for each file with an open mode that wasn't reported yet.
func (s *openSecrets) check(set *object.Set) []events.Entry {
	now := map[string]bool{}
	var fresh []events.Entry
	for _, d := range set.List() {
		if d.Key().Kind != object.Secret || d.Source != pod.SourceFile {
			continue
		}
		file := d.Origin
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm()&0o077 == 0 || now[file] {
			continue // if the file was just removed, the next set is without it
		}
		now[file] = true
		if !s.reported[file] {
			fresh = append(fresh, events.Entry{Type: v1.EventTypeWarning, Reason: pod.ReasonReadableSecret,
				Object: v1.ObjectReference{Name: file},
				Message: fmt.Sprintf("%s defines %s and has mode %04o, so that others than its owner may read or "+
					"change it: `chmod 600 %s`", file, d.Key(), info.Mode().Perm(), file)})
		}
	}
	s.reported = now
	return fresh
}
