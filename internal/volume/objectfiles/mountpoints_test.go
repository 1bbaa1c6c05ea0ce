package objectfiles

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func mounted(name string, mounts ...v1.VolumeMount) v1.Container {
	return v1.Container{Name: name, VolumeMounts: mounts}
}

func at(volume, path string) v1.VolumeMount { return v1.VolumeMount{Name: volume, MountPath: path} }

func TestWhereContainersMountSomethingInAVolume(t *testing.T) {
	part, byEnv := at("conf", "/part"), at("conf", "/env")
	part.SubPath, byEnv.SubPathExpr = "a", "$(A)"
	for name, c := range map[string]struct {
		containers []v1.Container
		want       []string
	}{
		"nothing":                        {[]v1.Container{mounted("a", at("conf", "/etc/app"), at("x", "/etc/other"), at("y", "/etc"), at("z", "/etc/apples"))}, nil},
		"in any order":                   {[]v1.Container{mounted("a", at("x", "/etc/app/x"), at("conf", "/etc/app"), at("y", "/etc/app/y/z"))}, []string{"x", "y/z"}},
		"paths in other forms":           {[]v1.Container{mounted("a", at("conf", "etc//app/"), at("x", "/etc/app/./x/"))}, []string{"x"}},
		"everywhere":                     {[]v1.Container{mounted("a", at("conf", "/"), at("x", "/etc/app"))}, []string{"etc/app"}},
		"the volume itself":              {[]v1.Container{mounted("a", at("conf", "/c"), at("conf", "/c/c"))}, []string{"c"}},
		"what lies between has it":       {[]v1.Container{mounted("a", at("conf", "/c"), at("x", "/c/x"), at("y", "/c/x/y"))}, []string{"x"}},
		"whatever the order":             {[]v1.Container{mounted("a", at("y", "/c/x/y"), at("x", "/c/x"), at("conf", "/c"))}, []string{"x"}},
		"the same place twice":           {[]v1.Container{mounted("a", at("conf", "/c"), at("x", "/c"))}, nil},
		"parts of the volume":            {[]v1.Container{mounted("a", part, at("x", "/part/x"), byEnv, at("y", "/env/y"))}, nil},
		"in another container":           {[]v1.Container{mounted("a", at("conf", "/c")), mounted("b", at("x", "/c/x"))}, nil},
		"in each container its own ones": {[]v1.Container{mounted("a", at("conf", "/c"), at("x", "/c/x")), mounted("b", at("conf", "/d"), at("x", "/d/y"))}, []string{"x", "y"}},
	} {
		if got := mountPoints(&v1.Pod{Spec: v1.PodSpec{Containers: c.containers}}, "conf"); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	// Of whatever kind the containers are.
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers:      []v1.Container{mounted("i", at("conf", "/c"), at("x", "/c/i"))},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon(mounted("e", at("conf", "/c"), at("x", "/c/e")))}},
	}}
	if got := mountPoints(p, "conf"); !slices.Equal(got, []string{"i", "e"}) {
		t.Errorf("%q", got)
	}
}

// What containers mount something at is there before they are made, and after every update.
func TestMountPoints(t *testing.T) {
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			o := &origin{}
			o.set("1")
			p := kind(o)
			r := request(t, t.TempDir())
			r.Pod.Spec.Containers = []v1.Container{mounted("a", at("conf", "/etc/app"), at("x", "/etc/app/cache/x"))}
			_, err := p.Mount(t.Context(), r)
			must(t, err)
			is := func() os.FileInfo {
				t.Helper()
				info, err := os.Lstat(filepath.Join(r.Dir, "cache", "x"))
				must(t, err)
				return info
			}
			first := is()
			o.set("2")
			changed, err := p.Refresh(t.Context(), r)
			if !changed || err != nil {
				t.Errorf("%t, %v", changed, err)
			}
			r.InUse = true
			_, err = p.Mount(t.Context(), r)
			must(t, err)
			if !os.SameFile(first, is()) {
				t.Error("another directory is in its place")
			}
		})
	}
}
