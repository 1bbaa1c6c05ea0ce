package file_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// stranger is a user, and a group, that no machine has.
const stranger = 61234

// mode gives a path a mode, whatever the umask.
func mode(m os.FileMode) func(testing.TB, string) {
	return func(t testing.TB, path string) { do(t, os.Chmod(path, m)) }
}

// owner gives it to a user and a group.
func owner(uid, gid int, m os.FileMode) func(testing.TB, string) {
	return func(t testing.TB, path string) {
		do(t, os.Chown(path, uid, gid))
		do(t, os.Chmod(path, m))
	}
}

// TestWhoMayWriteManifests: what every user may write isn't run; what another than root may is reported.
func TestWhoMayWriteManifests(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files to others")
	}
	for name, c := range map[string]struct {
		dir, manifest func(testing.TB, string)
		invoker       int
		// refused is what is in the problem, exposed in the exposures; empty for none.
		refused, exposed string
	}{
		"root's":                            {dir: mode(0o755), manifest: mode(0o644)},
		"group root may write":              {dir: mode(0o775), manifest: mode(0o664)},
		"a directory for everybody":         {dir: mode(0o777), refused: "chmod o-w DIR"},
		"a directory like /tmp":             {dir: mode(0o777 | os.ModeSticky), refused: "the directory of manifests DIR"},
		"a manifest for everybody":          {manifest: mode(0o666), refused: "chmod o-w DIR/web.yaml"},
		"a manifest of another user":        {manifest: owner(stranger, 0, 0o600), exposed: "DIR/web.yaml: the user 61234"},
		"a manifest of another group":       {manifest: owner(0, stranger, 0o660), exposed: "DIR/web.yaml: the group 61234"},
		"another group may only read":       {manifest: owner(0, stranger, 0o640)},
		"a directory of another user":       {dir: owner(stranger, stranger, 0o700), exposed: "DIR: the user 61234"},
		"a directory of another group":      {dir: owner(0, stranger, 0o770), exposed: "DIR: the group 61234"},
		"of the user who called sudo":       {dir: owner(stranger, stranger, 0o775), manifest: owner(stranger, stranger, 0o664), invoker: stranger},
		"of another than who called sudo":   {manifest: owner(stranger, 0, 0o600), invoker: stranger + 1, exposed: "the user 61234"},
		"everybody's, though sudo's user's": {manifest: owner(stranger, 0, 0o602), invoker: stranger, refused: "chmod o-w"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, sink := t.TempDir(), sourcetest.NewRecorder()
			path := filepath.Join(dir, "web.yaml")
			write(t, path, sourcetest.Manifest("web", "app:1"))
			for _, prepared := range []struct {
				path string
				by   func(testing.TB, string)
			}{{path, c.manifest}, {dir, c.dir}} {
				if prepared.by != nil {
					prepared.by(t, prepared.path)
				}
			}
			s := file.New(file.Config{Path: dir, Every: time.Hour, Files: filewatch.New(filewatch.Every, logr.Discard()), Invoker: rootdir.Invoker{UID: c.invoker, GID: c.invoker}}, sourcetest.NewReader(pod.SourceFile),
				manifeststore.NewStore(t.TempDir(), "", pod.SourceFile), sink, logFor(t))
			run(t, s)
			if c.refused == "" {
				sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
			} else {
				sink.Wait(t, "the problem, and no pod", problem(strings.ReplaceAll(c.refused, "DIR", dir)))
			}
			got := s.Exposures()
			if want := strings.ReplaceAll(c.exposed, "DIR", dir); want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want) && !strings.Contains(got[0], want)) {
				t.Errorf("exposures %q, want %q", got, want)
			}
		})
	}
}

// problem waits for a report without pods that has this in a problem.
func problem(text string) func(desired.Report) bool {
	return func(r desired.Report) bool {
		return len(sourcetest.Pods(r)) == 0 && slices.ContainsFunc(r.Problems, func(p pod.Problem) bool { return strings.Contains(p.Message, text) })
	}
}

// TestSingleManifest: of one file, the directory decides who may replace it.
func TestSingleManifest(t *testing.T) {
	for m, refused := range map[os.FileMode]bool{0o777: true, 0o777 | os.ModeSticky: false, 0o755: false} {
		dir, sink := t.TempDir(), sourcetest.NewRecorder()
		path := filepath.Join(dir, "web.yaml")
		write(t, path, sourcetest.Manifest("web", "app:1"))
		do(t, os.Chmod(dir, m))
		run(t, newSource(t, path, t.TempDir(), sink))
		if refused {
			sink.Wait(t, "the problem, and no pod", problem("chmod o-w "+dir))
		} else {
			sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
		}
	}
}

// TestOpenedDirectory: the pods of a directory that was opened to everybody run on, and nothing new is read from it until it is closed.
func TestOpenedDirectory(t *testing.T) {
	dir, sink := watched(t)
	do(t, os.Chmod(dir, 0o777))
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "evil:1"))
	write(t, filepath.Join(dir, "more.yaml"), sourcetest.Manifest("more", "evil:1"))
	sink.Wait(t, "the problem", func(r desired.Report) bool {
		return sourcetest.Has("web-node1=app:1!")(r) && slices.ContainsFunc(r.Problems, func(p pod.Problem) bool { return strings.Contains(p.Message, "chmod o-w") })
	})
	do(t, os.Remove(filepath.Join(dir, "more.yaml")))
	do(t, os.Chmod(dir, 0o755))
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:2"))
	sink.Wait(t, "the new version", sourcetest.Has("web-node1=app:2"))
	for _, r := range sink.All() {
		if strings.Contains(sourcetest.Describe(r), "evil") {
			t.Errorf("it ran what anybody may have written: %v", r)
		}
	}
}
