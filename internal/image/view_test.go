package image

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// TestWhileTheAgentStarts: nobody gets at images before their records are read.
func TestWhileTheAgentStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		images := New(Config{Extras: standalone{}})
		for name, ask := range map[string]func() error{
			"list":   func() error { _, err := images.List(t.Context()); return err },
			"pull":   func() error { _, err := images.Pull(t.Context(), "a:1", func(PullProgress) {}); return err },
			"import": func() error { _, err := images.Import(t.Context(), strings.NewReader("a:1")); return err },
			"save":   func() error { return images.Save(t.Context(), []string{"a:1"}, io.Discard) },
			"tag":    func() error { _, err := images.Tag(t.Context(), "a:1", "b:1"); return err },
			"remove": func() error { _, err := images.Remove(t.Context(), "a:1"); return err },
			"prune":  func() error { _, err := images.Prune(t.Context(), true); return err },
		} {
			began := time.Now()
			if err := ask(); !errors.Is(err, ErrStarting) || time.Since(began) != startPatience {
				t.Errorf("%s: %v after %s", name, err, time.Since(began))
			}
		}
		go func() {
			time.Sleep(startPatience / 2)
			close(images.started)
		}()
		if err := images.ready(t.Context()); err != nil {
			t.Errorf("an agent that comes up in time: %v", err)
		}
	})
}

// standalone has a runtime with a store: the text of an archive are names of images. Tags are reported to tagged.
type standalone struct {
	engine.External
	tagged func(id string, names []string, target string) error
	saving func() // while an archive is written
}

func (s standalone) Store() engine.Store { return s }

func (s standalone) ExportTo(_ context.Context, names []string, archive io.Writer) error {
	if s.saving != nil {
		s.saving()
	}
	_, err := io.WriteString(archive, strings.Join(names, " "))
	return err
}

func (s standalone) Tag(_ context.Context, id string, names []string, target string) error {
	return s.tagged(id, names, target)
}

func (standalone) ImportFrom(_ context.Context, archive io.Reader) ([]string, error) {
	name, err := io.ReadAll(archive)
	if err == nil && len(name) == 0 {
		err = errors.New("it is empty")
	}
	return []string{string(name)}, err
}

func TestImport(t *testing.T) {
	r := newRig(t, standalone{})
	if names, err := r.Import(t.Context(), strings.NewReader("a:1")); err != nil || !slices.Equal(names, []string{"a:1"}) {
		t.Errorf("got %v, %v", names, err)
	}
	if _, err := r.Import(t.Context(), strings.NewReader("")); !errors.Is(err, ErrArchive) || err.Error() != "it is empty" {
		t.Errorf("a bad archive: %v", err)
	}
	// Another runtime refuses at once, though the agent still starts.
	if _, err := New(Config{Extras: engine.External("")}).Import(t.Context(), strings.NewReader("a:1")); !errors.Is(err, ErrUnsupported) {
		t.Errorf("another runtime: %v", err)
	}
}

// TestSave: an image is saved by the name that was given, or by all if that was its ID.
func TestSave(t *testing.T) {
	r := newRig(t, standalone{})
	id := r.runtime.Images.Add("r.io/a:1", false)
	r.runtime.Images.Add("r.io/b:1", false)
	for want, names := range map[string][]string{
		"r.io/a:1":          {"r.io/a:1"},
		"r.io/a:1 r.io/b:1": {"r.io/b:1", id, "r.io/a:1"},
	} {
		var archive strings.Builder
		if err := r.Save(t.Context(), names, &archive); err != nil || archive.String() != want {
			t.Errorf("%q: saved %q, %v", names, &archive, err)
		}
	}
	var kept error
	own := r.cfg.Extras
	r.cfg.Extras = standalone{saving: func() { _, kept = r.Remove(t.Context(), id) }}
	if err := r.Save(t.Context(), []string{id}, io.Discard); err != nil {
		t.Error(err)
	}
	if !errors.Is(kept, gc.ErrRetained) || !strings.HasSuffix(kept.Error(), ": in use by a command that saves it") {
		t.Errorf("removing it meanwhile: %v", kept)
	}
	r.cfg.Extras = own
	var archive strings.Builder
	err := r.Save(t.Context(), []string{"r.io/a:1", "r.io/c:1"}, &archive)
	if !errors.Is(err, gc.ErrUnknown) || archive.Len() > 0 {
		t.Errorf("one that isn't there: %q, %v", &archive, err)
	}
	err = New(Config{Extras: engine.External("")}).Save(t.Context(), []string{"a:1"}, &archive)
	if !errors.Is(err, ErrUnsupported) {
		t.Errorf("another runtime: %v", err)
	}
}

// TestTag: an image gets a further name, in full, and pods that wait for that look again.
func TestTag(t *testing.T) {
	var got []string
	r := newRig(t, standalone{tagged: func(id string, names []string, target string) error {
		got = append([]string{id, target}, names...)
		return nil
	}})
	id := r.runtime.Images.Add("r.io/a:1", false)
	other := r.runtime.Images.Add("r.io/b:1", false)
	tagged, err := r.Tag(t.Context(), "r.io/a:1", "web")
	if err != nil || tagged.Name != "docker.io/library/web:latest" || tagged.Image.ID != id || tagged.Before != "" ||
		!slices.Equal(tagged.Image.Refs, []string{"r.io/a:1", tagged.Name}) ||
		!slices.Equal(got[:3], []string{id, tagged.Name, "r.io/a:1"}) {
		t.Errorf("tagged %+v as %q: %v", tagged, got, err)
	}
	if len(r.arrived) != 1 {
		t.Error("pods that wait aren't told")
	}
	if tagged, err := r.Tag(t.Context(), id, "r.io/b:1"); err != nil || tagged.Before != other {
		t.Errorf("moving a name: %+v, %v", tagged, err)
	}
	got = nil
	if tagged, err := r.Tag(t.Context(), "r.io/a:1", "r.io/a:1"); err != nil || tagged.Before != "" || got != nil {
		t.Errorf("a name that it has: %+v, %q, %v", tagged, got, err)
	}
	digest := strings.Repeat("0", 64)
	for _, bad := range []string{"", "A:1", "a b", "sha256:1234", "r.io/a@sha256:" + digest, digest, "r.io/a:-"} {
		if _, err := r.Tag(t.Context(), "r.io/a:1", bad); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := r.Tag(t.Context(), "r.io/c:1", "d:1"); !errors.Is(err, gc.ErrUnknown) {
		t.Errorf("one that isn't there: %v", err)
	}
	if _, err := New(Config{Extras: engine.External("")}).Tag(t.Context(), "a:1", "b:1"); !errors.Is(err, ErrUnsupported) {
		t.Errorf("another runtime: %v", err)
	}
}

// TestByHand: what a person pulls is there at once, and goes when nothing needs it.
func TestByHand(t *testing.T) {
	r := newRig(t, engine.External(""))
	for _, name := range []string{"r.io/used:1", "r.io/unused:1"} {
		img, err := r.Pull(t.Context(), name, func(PullProgress) {})
		if err != nil || !slices.Equal(img.Refs, []string{name}) {
			t.Fatalf("pulled %+v, %v", img, err)
		}
	}
	if n := len(r.arrived); n != 2 {
		t.Errorf("pods that wait were told %d times", n)
	}
	// Twice, so that it is seen that a pod is named once.
	r.set(func(r *rig) { r.wanted = []*pod.Desired{{Pod: podOf("web", "r.io/used:1", "r.io/used:1")}} })
	list, err := r.List(t.Context())
	if err != nil || len(list) != 2 || list[0].UsedBy != nil || !slices.Equal(list[1].UsedBy, []string{"default/web"}) {
		t.Errorf("images are %+v, %v", list, err)
	}
	if _, err := r.Remove(t.Context(), "r.io/used:1"); !errors.Is(err, gc.ErrRetained) {
		t.Errorf("removing one in use: %v", err)
	}
	if _, err := r.Remove(t.Context(), "r.io/other:1"); !errors.Is(err, gc.ErrUnknown) {
		t.Errorf("removing one that isn't there: %v", err)
	}
	for _, dryRun := range []bool{true, false} {
		done, err := r.Prune(t.Context(), dryRun)
		if err != nil || len(done) != 2 || !done[0].Removed || done[0].Image.Refs[0] != "r.io/unused:1" || done[1].Removed || done[1].Image.Refs[0] != "r.io/used:1" {
			t.Errorf("pruning (dry: %t): %+v, %v", dryRun, done, err)
		}
	}
	r.set(func(r *rig) { r.wanted = nil })
	if done, err := r.Remove(t.Context(), "r.io/used:1"); err != nil || !done.Removed {
		t.Errorf("removing one that nothing needs: %+v, %v", done, err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("left are %+v, %v", list, err)
	}
}

// TestUsesUnknown: what would need to know all pods is refused while they aren't known.
func TestUsesUnknown(t *testing.T) {
	r := newRig(t, engine.External(""))
	r.set(func(r *rig) { r.silent = true })
	if _, err := r.Prune(t.Context(), true); !errors.Is(err, gc.ErrUsesUnknown) {
		t.Errorf("pruning: %v", err)
	}
	r.runtime.Images.Add("r.io/a:1", false)
	if _, err := r.Remove(t.Context(), "r.io/a:1"); !errors.Is(err, gc.ErrUsesUnknown) {
		t.Errorf("removing: %v", err)
	}
	if list, err := r.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("listing: %+v, %v", list, err)
	}
}
