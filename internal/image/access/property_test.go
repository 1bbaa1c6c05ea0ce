package access

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// model is what is to be true of an image.
type model struct {
	there, ours, open, imported bool
	shown                       []string // passwords
	// begun says that a pull was begun whose end nobody wrote down.
	begun bool
}

// TestAnyHistory pulls, fails, kills, resolves intents and prunes at random: whoever has shown a
// password may use the image, nobody else may, and a restart changes nothing.
func TestAnyHistory(t *testing.T) {
	logins := []credentials.Credential{secret("s1", "1", "one"), secret("s2", "2", "one"), secret("s3", "3", "two"), secret("s4", "4", "three")}
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		r := load(t, dir, "")
		images := map[string]*model{"a:1": {}, "b:1": {}}
		ref := func(_ context.Context, image string) (string, error) {
			if !images[image].there {
				return "", nil
			}
			return "sha256:" + image, nil
		}
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			image := rapid.SampledFrom([]string{"a:1", "b:1"}).Draw(rt, "image")
			m := images[image]
			switch step := rapid.SampledFrom([]string{"pull", "pull openly", "fail", "give up", "kill", "restart", "resolve", "remove", "import"}).Draw(rt, "step"); step {
			case "pull":
				login := rapid.SampledFrom(logins).Draw(rt, "login")
				pull(t, r, image, "sha256:"+image, login)
				m.there, m.ours, m.begun = true, true, false
				m.shown = append(m.shown, login.Password)
			case "pull openly":
				pull(t, r, image, "sha256:"+image)
				m.there, m.ours, m.begun, m.open = true, true, false, true
			case "fail", "give up", "kill":
				if err := r.Intend(image); err != nil {
					rt.Fatal(err)
				}
				if step == "fail" {
					r.NotPulled(image, true)
					break
				}
				m.begun = true
				m.there = m.there || rapid.Bool().Draw(rt, "comes")
				if step == "kill" {
					r = load(t, dir, "")
				} else {
					r.NotPulled(image, false)
				}
			case "restart":
				r = load(t, dir, "")
			case "resolve":
				if err := r.ResolveIntents(t.Context(), ref); err != nil {
					rt.Fatal(err)
				}
				for _, m := range images {
					m.ours = m.ours || m.begun && m.there
					m.begun = false
				}
			case "remove":
				m.there = false
				var present []string
				for name, m := range images {
					if m.there {
						present = append(present, "sha256:"+name)
					}
				}
				if err := r.Prune(present, time.Now().Add(time.Hour)); err != nil {
					rt.Fatal(err)
				}
				m.ours, m.open, m.imported, m.shown = false, false, false, nil
			case "import":
				if err := r.Imported(image, "sha256:"+image); err != nil {
					rt.Fatal(err)
				}
				*m = model{there: true, imported: true}
			}
			for name, m := range images {
				for _, c := range logins {
					want := m.imported || !m.ours && !m.begun || m.open || slices.Contains(m.shown, c.Password)
					if got := may(t, r, name, "sha256:"+name, c); got != want {
						rt.Fatalf("%s with %s: %v, want %v of %s", name, c.Password, got, want, fmt.Sprintf("%+v", *m))
					}
				}
			}
		}
	})
}
