package agent_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// What happened before a restart is listed after it, also in a pod's explanation; what happens then comes last.
func TestEventsSurviveARestart(t *testing.T) {
	r := newRig(t)
	r.up()
	r.want("a", "  containers: [{name: web, image: IMAGE}]\n")
	r.await("runs", r.running("a/web"))
	client := local.NewClient(local.SocketPath(r.path("root")))
	listed := func(what string, reasons ...string) {
		t.Helper()
		r.await(what, func() string {
			list, err := client.Events(t.Context())
			if err != nil {
				return err.Error()
			}
			var got []string
			for _, e := range list {
				if e.Object == "pod/a-n" {
					got = append(got, e.Reason)
				}
			}
			if !slices.Equal(got, reasons) {
				return fmt.Sprintf("%v, want %v", got, reasons)
			}
			return ""
		})
	}
	listed("before", "Pulled", "Created", "Started")
	r.restart()
	r.await("runs on", r.running("a/web"))
	listed("after", "Pulled", "Created", "Started")
	r.await("explained", func() string {
		why, err := client.Why(t.Context(), "default", "a-n") // the manifest may not have been read yet
		if err == nil && len(why.Events) == 3 {
			return ""
		}
		return fmt.Sprintf("%v, %+v", err, why.Events)
	})
	r.unwant("a")
	listed("more", "Pulled", "Created", "Started", "Killing")
}
