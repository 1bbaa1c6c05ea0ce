package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// waiting returns the second part of a message that the API server can't be used: the pods whose end can't be reported,
// the pods that wait for objects of the API server, and the pods with an expired token (expired). It returns "" if
// there are none.
func waiting(pods []*podstatus.Entry, expired []string) (text string) {
	var ended, wait []string
	for _, e := range pods {
		if d := e.Report.Desired; d == nil || d.Source != pod.SourceAPI {
			continue
		}
		switch name := e.Pod.Namespace + "/" + e.Pod.Name; {
		case e.Report.Gone:
			ended = append(ended, name)
		case slices.ContainsFunc(e.Report.Waits, func(w pod.Wait) bool { return w.Object.Name != "" }):
			wait = append(wait, name)
		}
	}
	if len(ended) > 0 {
		text = "; it can't be told that these have ended: " + some(ended)
	}
	if len(wait) > 0 {
		text += "; these wait for what only it knows: " + some(wait)
	}
	if len(expired) > 0 {
		text += "; these run with service account tokens that have ended: " + some(expired)
	}
	return text
}

// some joins the first names of a list with commas, and gives the number of the others.
func some(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
