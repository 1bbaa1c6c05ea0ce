package cgroup

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPath(t *testing.T) {
	for want, parts := range map[string][]string{
		"/": nil,
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice": {"kubepods", "burstable", "pod" + slicePart("1-2")},
	} {
		if got := slicePath(parts); got != want {
			t.Errorf("%q: got %s, want %s", parts, got, want)
		}
	}
}

func TestRoot(t *testing.T) {
	for group, want := range map[string][]string{
		"/":                    nil,
		"/a":                   {"a"},
		"/a/b":                 {"a", "b"},
		"/my-pods/b_c":         {"my_pods", "b_c"},
		"/a.slice":             {"a"},
		"/a.slice/a-b_c.slice": {"a", "b_c"},
	} {
		if got := sliceRoot(group); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", group, got, want)
		}
	}
}

// Every text can be told from every other by what slicePart makes of it.
func TestPartAndBelow(t *testing.T) {
	parts := []string{"kubepods", "burstable"}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9_\\x.:-]{0,12}`)).Draw(t, "text")
		name := "kubepods-burstable-" + slicePart(text) + ".slice"
		if got, ok := sliceBelow(parts, name); !ok || got != text {
			t.Errorf("%q became %s, and that %q (%v)", text, name, got, ok)
		}
	})
	for _, name := range []string{
		"kubepods-burstable-poda.scope", "kubepods-poda.slice", "kubepods-burstable-poda-b.slice", "kubepods-burstable.slice",
		`kubepods-burstable-pod\`, `kubepods-burstable-pod\x5.slice`, `kubepods-burstable-pod\x5z.slice`, `kubepods-burstable-pod\y5f.slice`,
	} {
		if got, ok := sliceBelow(parts, name); ok {
			t.Errorf("%s is taken for %q", name, got)
		}
	}
}
