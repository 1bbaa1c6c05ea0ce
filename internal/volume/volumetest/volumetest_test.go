package volumetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

// envFlaw is what is wrong with the toy, for the suite to find.
const envFlaw = "DECKHAND_TEST_FLAW"

// toy is a live plugin with two files, and with a flaw.
type toy struct {
	flaw    string
	version int
}

func (*toy) Name() string { return "example.org/toy" }

func (p *toy) Supports(s volume.Spec) bool {
	return s.Kind() == "configMap" || p.flaw == "supports others" && s.Kind() == "secret"
}

func (p *toy) content() map[string]string {
	return map[string]string{"a": fmt.Sprint("a", p.version), "b/c": fmt.Sprint("c", p.version)}
}

func (p *toy) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if p.flaw == "never asks the context" {
		ctx = context.WithoutCancel(ctx)
	}
	if ctx.Err() != nil {
		return volume.Mounted{}, ctx.Err()
	}
	if p.flaw == "takes a directory for a volume" {
		if _, err := os.Stat(r.Dir); err == nil {
			return volume.Mounted{Path: r.Dir}, nil
		}
	}
	if p.flaw == "leaves something beside it" {
		if err := os.MkdirAll(r.Dir+".new", 0o750); err != nil {
			return volume.Mounted{}, err
		}
	}
	if p.flaw == "is elsewhere" {
		r.Dir = filepath.Join(filepath.Dir(r.Dir), "elsewhere")
	}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return volume.Mounted{}, err
	}
	if err := p.give(r); err != nil {
		return volume.Mounted{}, err
	}
	_, err := p.write(ctx, r)
	return volume.Mounted{Path: r.Dir}, err
}

// give gives the volume to the pod's group, if it isn't the group's already.
func (p *toy) give(r volume.Request) error {
	gid, ok := volume.FSGroup(r.Pod)
	if !ok || p.flaw == "ignores the group" {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Lstat(r.Dir, &st); err != nil || int(st.Gid) == gid {
		return err
	}
	return os.Lchown(r.Dir, -1, gid)
}

func (p *toy) Refresh(ctx context.Context, r volume.Request) (bool, error) {
	changed, err := p.write(ctx, r)
	return changed || p.flaw == "always reports a change", err
}

func (p *toy) write(ctx context.Context, r volume.Request) (bool, error) {
	if p.flaw == "writes file by file" || p.flaw == "writes what is there" || p.flaw == "follows links" {
		return true, p.writeEach(r.Dir)
	}
	o := atomicwriter.Options{}
	if gid, ok := volume.FSGroup(r.Pod); ok {
		o.Group = &gid
	}
	files := map[string]atomicwriter.File{}
	for name, text := range p.content() {
		files[name] = atomicwriter.File{Data: []byte(text), Mode: 0o644}
	}
	if p.flaw == "misses a file" {
		delete(files, "a")
	}
	return atomicwriter.Write(ctx, r.Dir, files, o)
}

func (p *toy) writeEach(dir string) error {
	var errs []error
	for name, text := range p.content() {
		path := filepath.Join(dir, name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

func TestToy(t *testing.T) {
	p := &toy{flaw: os.Getenv(envFlaw)}
	Run(t, Case{
		Plugin: p,
		Spec: func(string) volume.Spec {
			return volume.Spec{Volume: &v1.Volume{Name: "toy", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}
		},
		Want: (&toy{}).content(),
		Change: func(n int) map[string]string {
			p.version = n
			return p.content()
		},
	})
}

// TestTheSuiteFindsFlaws has the suite test the toy with one flaw after the other.
func TestTheSuiteFindsFlaws(t *testing.T) {
	if os.Getenv(envFlaw) != "" {
		t.Skip("this is for the toy")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flaw, test := range map[string]string{
		"supports others":                "supports_only_its_kind",
		"is elsewhere":                   "ready_once_mounted",
		"misses a file":                  "ready_once_mounted",
		"writes what is there":           "mounted_again",
		"ignores the group":              "belongs_to_the_fsGroup",
		"never asks the context":         "an_ended_context",
		"leaves something beside it":     "teardown",
		"takes a directory for a volume": "half_made",
		"follows links":                  "a_link_in_its_place",
		"always reports a change":        "follows_its_source",
		"writes file by file":            "read_while_it_changes",
	} {
		t.Run(flaw, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestToy$/^"+test+"$")
			cmd.Env = append(os.Environ(), envFlaw+"="+flaw)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestToy/"+test) {
				t.Errorf("%s passed (%v): %s", test, err, out)
			}
		})
	}
	t.Run("takes a directory for a volume, after a crash", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestToy$/^killed$/^mounting,_and_mounted_again$")
		cmd.Env = append(os.Environ(), envFlaw+"=takes a directory for a volume")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "killed_at_step_") {
			t.Errorf("it passed (%v): %s", err, out)
		}
	})
}
