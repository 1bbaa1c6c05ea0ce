package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func id(c string) string { return "sha256:" + strings.Repeat(c, 64) }

func TestList(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	w.add(id("a"), 7, "docker.io/library/web:1").RepoDigests = []string{"docker.io/library/web@" + id("1")}
	w.add(id("b"), 8, "docker.io/library/app:1").Pinned = true
	w.add(id("c"), 9, "registry.k8s.io/pause:3.10")
	w.add("", 9)
	w.use("web:1", id("b")[len("sha256:"):], "quay.io/other@"+id("1"), "gone:1")
	images, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range images {
		if images[n].Detected.IsZero() || images[n].Used.IsZero() != (len(images[n].Users) == 0) {
			t.Errorf("times of %+v", images[n])
		}
		images[n].Detected, images[n].Used = Image{}.Detected, Image{}.Used
	}
	user := User{Pod: "default/web", How: "wanted"}
	want := []Image{
		{ID: id("b"), Tags: []string{"docker.io/library/app:1"}, Size: 8, Pinned: "pinned in the runtime", Users: []User{user}},
		{ID: id("a"), Tags: []string{"docker.io/library/web:1"}, Digests: []string{"docker.io/library/web@" + id("1")}, Size: 7, Users: []User{user, user}},
		{ID: id("c"), Tags: []string{"registry.k8s.io/pause:3.10"}, Size: 9, Pinned: "the image of the pods' sandboxes"},
	}
	if diff := cmp.Diff(want, images); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestListBeforeAllUsersAreKnown: a person sees what there is. What isn't known to be in use
// is neither taken for unused from now on, nor removed.
func TestListBeforeAllUsersAreKnown(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	w.add("a", mib, "a:1")
	w.add("b", mib, "b:1")
	w.use("a:1", "b:1")
	before, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.add("new", mib, "new:1")
	w.use("a:1")
	w.fail("uses", fmt.Errorf("%w: a source is silent", ErrUsesUnknown))
	images, err := c.List(t.Context())
	if err != nil || len(images) != 3 || len(images[0].Users) != 1 || len(images[1].Users) != 0 || images[1].Used != before[1].Used || !images[2].Detected.IsZero() {
		t.Errorf("%+v, %v", images, err)
	}
	if !c.records.byID["b"].inUse {
		t.Error("what isn't known to be in use counts as unused")
	}
	want := "the images in use aren't determined yet: a source is silent"
	if _, _, err := c.Remove(t.Context(), "b:1"); err == nil || err.Error() != want {
		t.Errorf("removing one: %v, want %s", err, want)
	}
	if _, err := c.Prune(t.Context(), false); err == nil || err.Error() != want {
		t.Errorf("pruning: %v, want %s", err, want)
	}
	if removed, _ := w.taken(); len(removed) > 0 {
		t.Errorf("removed %v", removed)
	}
}

func TestPrune(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	w.add("a", mib, "a:1")
	w.add("used", mib, "used:1")
	w.use("used:1")
	for _, dryRun := range []bool{true, true, false} {
		r, err := c.Prune(t.Context(), dryRun)
		if err != nil || r.Freed != mib || len(r.Removed) != 1 || r.Removed[0].ID != "a" || len(r.Retained) != 1 || r.Retained[0].Why != "in use by pod default/web (wanted)" {
			t.Errorf("dry run %v: %+v, %v", dryRun, r, err)
		}
		if removed, events := w.taken(); dryRun == (len(removed) == 1) || len(events) > 0 {
			t.Errorf("dry run %v: removed %v, events %v", dryRun, removed, events)
		}
	}
	if len(w.counts) > 0 {
		t.Errorf("what a person asked for counts as collected: %v", w.counts)
	}
}

func TestRemove(t *testing.T) {
	for _, c := range []struct {
		name    string
		removed string
		err     string
	}{
		{name: "single:1", removed: "a"},
		{name: "docker.io/library/single:1", removed: "a"},
		{name: id("a"), removed: "a"},
		{name: "aaaaaaaa", removed: "a"},
		{name: "sha256:AAAAAAA", removed: "a"},
		{name: "aaaaa", err: `no such image: "aaaaa" isn't on this node`},
		{name: "single", err: `no such image: "single" isn't`},
		{name: id("b"), removed: "b"},
		{name: "used:1", err: "in use by pod default/web (wanted)"},
		{name: "pinned:1", err: "pinned"},
		{name: "pause:1", err: "sandboxes"},
		{name: "fail:1", err: "remove image docker.io/library/fail:1: device busy"},
		{name: "ffffff", err: "may be any of docker.io/library/fail:1"},
	} {
		w := newWorld()
		w.add(id("a"), mib, "docker.io/library/single:1")
		w.add(id("b"), mib, "docker.io/library/one:1", "docker.io/library/two:2")
		w.add(id("c"), mib, "docker.io/library/used:1")
		w.add(id("d"), mib, "docker.io/library/pinned:1").Pinned = true
		w.add(id("e"), mib, "docker.io/library/pause:1")
		w.add(id("f"), mib, "docker.io/library/fail:1")
		w.add("sha256:ffffff0", mib, "docker.io/library/near:1")
		w.use("used:1")
		w.failing[id("f")] = true
		col := w.collector(t, byDefault)
		col.cfg.Keep = func() map[string]string { return map[string]string{"pause:1": "the image of the pods' sandboxes"} }
		image, names, err := col.Remove(t.Context(), c.name)
		removed, _ := w.taken()
		switch {
		case c.err != "":
			unknown, failed := image.ID == "", strings.Contains(c.name, "fail")
			if err == nil || !strings.Contains(err.Error(), c.err) || len(removed)+len(names) > 0 ||
				errors.Is(err, ErrUnknown) != unknown || errors.Is(err, ErrRetained) == (unknown || failed) {
				t.Errorf("%s: removed %v, error %v, want %q", c.name, removed, err, c.err)
			}
		case err != nil || len(names) > 0 || image.ID != id(c.removed) || !slices.Equal(removed, []string{id(c.removed)}):
			t.Errorf("%s: removed %v, %+v, error %v", c.name, removed, image, err)
		}
	}
}

func TestKey(t *testing.T) {
	for ref, want := range map[string]string{
		"nginx":                          "docker.io/library/nginx:latest",
		"docker.io/library/nginx:latest": "docker.io/library/nginx:latest",
		"quay.io/a/b:1":                  "quay.io/a/b:1",
		"a/b:1@" + id("1"):               id("1"),
		id("2"):                          id("2"),
		id("2")[7:]:                      id("2"),
		"Not A Name":                     "Not A Name",
	} {
		if got := key(ref); got != want {
			t.Errorf("key of %q is %q, want %q", ref, got, want)
		}
	}
}

// TestTag: a name is given to the image that a person means, and moves from another; the name by which one is kept
// doesn't.
func TestTag(t *testing.T) {
	for _, c := range []struct{ source, target, before, err string }{
		{source: "one:1", target: "docker.io/library/new:1"},
		{source: id("a"), target: "docker.io/library/two:2", before: id("b")},
		{source: "one:1", target: "registry.k8s.io/pause:3.10", before: id("c"),
			err: "the image of the pods' sandboxes; choose another name"},
		{source: "none:1", target: "docker.io/library/new:1", err: `"none:1" isn't on this node`},
		{source: "one:1", target: "docker.io/library/fails:1", err: "tag image one:1 as docker.io/library/fails:1: no space"},
	} {
		w := newWorld()
		w.add(id("a"), mib, "one:1")
		w.add(id("b"), mib, "two:2")
		w.add(id("c"), mib, "registry.k8s.io/pause:3.10")
		tagged := ""
		tag := func(_ context.Context, i Image) error {
			tagged = i.ID
			if strings.Contains(c.target, "fails") {
				return errors.New("no space")
			}
			return nil
		}
		image, before, err := w.collector(t, byDefault).Tag(t.Context(), c.source, c.target, tag)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || before != c.before {
			t.Errorf("%s as %s: before %q, error %v", c.source, c.target, before, err)
		}
		if err == nil && (tagged != id("a") || image.ID != id("a")) {
			t.Errorf("%s as %s: tagged %q", c.source, c.target, tagged)
		}
	}
}

// TestUntag: one of several names of an image goes, and with it what else is called by its repository only; unless that
// name is needed.
func TestUntag(t *testing.T) {
	digest := "@" + id("9")
	for _, c := range []struct {
		name string
		uses []string
		gone []string
		err  string
	}{
		{name: "one:1", uses: []string{"two:2", id("a")}, gone: []string{"docker.io/library/one:1", "docker.io/library/one" + digest}},
		{name: "two:2", gone: []string{"docker.io/library/two:2"}},
		{name: "two" + digest, gone: []string{"docker.io/library/two:2", "docker.io/library/two:3", "docker.io/library/two" + digest}},
		{name: "one:1", uses: []string{"two" + digest}, gone: []string{"docker.io/library/one:1", "docker.io/library/one" + digest}},
		{name: "one:1", uses: []string{"docker.io/library/one" + digest}, err: "in use by pod default/web (wanted)"},
		{name: "two:3", uses: []string{"two:3"}, err: "in use by pod default/web (wanted)"},
		{name: "kept:1", err: "its archive is in the images directory"},
		{name: id("9"), gone: []string{id("a")}},
	} {
		w := newWorld()
		w.add(id("a"), mib, "docker.io/library/one:1", "docker.io/library/two:2", "docker.io/library/two:3", "docker.io/library/kept:1").RepoDigests =
			[]string{"docker.io/library/one" + digest, "docker.io/library/two" + digest}
		w.use(c.uses...)
		col := w.collector(t, byDefault)
		col.cfg.Keep = func() map[string]string { return map[string]string{"kept:1": "its archive is in the images directory"} }
		if strings.HasPrefix(c.name, "sha256:") {
			col.cfg.Keep = nil
		}
		image, names, err := col.Remove(t.Context(), c.name)
		removed, _ := w.taken()
		if !slices.Equal(removed, c.gone) || image.ID != id("a") || (err == nil) != (c.err == "") || err != nil && (!errors.Is(err, ErrRetained) || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s in use by %q: removed %q, error %v", c.name, c.uses, removed, err)
		}
		if whole := slices.Equal(c.gone, []string{id("a")}); err == nil && !whole && !slices.Equal(names, c.gone) || whole && len(names) > 0 {
			t.Errorf("%s: it says that %q went", c.name, names)
		}
	}
	w := newWorld()
	w.add(id("a"), mib, "one:1", "two:2")
	w.fail("untag", errors.ErrUnsupported)
	if _, _, err := w.collector(t, byDefault).Remove(t.Context(), "one:1"); !errors.Is(err, ErrRetained) || !strings.Contains(err.Error(), "it has other names, which would go too (one:1, two:2)") {
		t.Errorf("where it can't be untagged: %v", err)
	}
}
