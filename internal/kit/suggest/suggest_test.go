package suggest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

func TestOf(t *testing.T) {
	known := []string{"maxPods", "maxPod", "clusterDNS", "clusterDomain", "x"}
	for name, want := range map[string]string{
		"maxPods":       "maxPods",
		"MAXPODS":       "maxPods",
		"maxPodz":       "maxPods", // maxPod is as near, but comes later
		"mxaPods":       "maxPods", // two that changed places are one slip
		"clusterDms":    "clusterDNS",
		"clusterDomian": "clusterDomain",
		"clstrDmin":     "",
		"":              "x",
		"colour":        "",
	} {
		if got := suggest.Of(name, slices.Values(known), 2); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
	for most, want := range []string{"", "", "", "maxPods"} {
		if got := suggest.Of("mxPoz", slices.Values(known[:1]), most); got != want {
			t.Errorf("with %d slips it is %q, want %q", most, got, want)
		}
	}
	if got := suggest.Of("x", slices.Values(known), -1); got != "" {
		t.Errorf("less than no slip makes it %q", got)
	}
}

// So many slips, and no more, are forgiven.
func TestSlipsAreForgiven(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		name := rapid.StringMatching(`[a-z]{4,12}`).Draw(r, "name")
		at := rapid.IntRange(0, len(name)-2).Draw(r, "at")
		slip := map[string]string{
			"too many":       name[:at] + "_" + name[at:],
			"too few":        name[:at] + name[at+1:],
			"another":        name[:at] + "_" + name[at+1:],
			"changed places": name[:at] + name[at+1:at+2] + name[at:at+1] + name[at+2:],
		}
		for what, wrong := range slip {
			if got := suggest.Of(wrong, slices.Values([]string{name}), 1); got != name {
				r.Errorf("%s: %s isn't taken for %s", what, wrong, name)
			}
		}
		if wrong := "__" + name; suggest.Of(wrong, slices.Values([]string{name}), 1) != "" {
			r.Errorf("%s is taken for %s", wrong, name)
		}
	})
}

func TestLongNamesTakeNoTime(t *testing.T) {
	begin := time.Now()
	long := strings.Repeat("a", 1<<20)
	for range 1000 {
		if got := suggest.Of(long, slices.Values([]string{"maxPods"}), 3); got != "" {
			t.Fatalf("it is taken for %q", got)
		}
	}
	if took := time.Since(begin); took > 20*time.Second { // a table of it would take hours
		t.Errorf("it took %s", took)
	}
}
