package agent

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/local"
)

// TestImagesWhileTheAgentStarts: nobody gets at images before their records are read.
func TestImagesWhileTheAgentStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := imagesView{&imageSide{started: make(chan struct{})}}
		for name, ask := range map[string]func() error{
			"list":   func() error { _, err := view.List(t.Context()); return err },
			"pull":   func() error { _, err := view.Pull(t.Context(), "a:1", func(local.PullProgress) {}); return err },
			"remove": func() error { _, err := view.Remove(t.Context(), "a:1"); return err },
			"prune":  func() error { _, err := view.Prune(t.Context(), true); return err },
		} {
			began := time.Now()
			var refused *local.StatusError
			if err := ask(); !errors.As(err, &refused) || refused.Code != http.StatusServiceUnavailable || time.Since(began) != startPatience {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		go func() {
			time.Sleep(startPatience / 2)
			close(view.started)
		}()
		if err := view.ready(t.Context()); err != nil {
			t.Errorf("an agent that comes up in time: %v", err)
		}
	})
}
