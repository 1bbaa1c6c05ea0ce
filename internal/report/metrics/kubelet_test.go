package metrics_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// Each metric of the kubelet's is here, with its type and labels, or it says when it comes; and none has a name that
// looks like the kubelet's and isn't.
func TestNamesAreTheKubelets(t *testing.T) {
	text, err := os.ReadFile("testdata/kubelet-1.36-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	theirs, later := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasSuffix(line, " /metrics/resource\n") || strings.HasSuffix(line, " /metrics/slis\n") {
			continue // served apart: TestChecks, and the test of resources/stats
		}
		described, when, _ := strings.Cut(strings.TrimSpace(line), ": ")
		f := strings.Fields(described)
		if len(f) != 4 || strings.HasSuffix(line, ":\n") {
			t.Fatalf("line %q", line)
		}
		theirs[f[0]] = f[1] + " " + f[2]
		later[f[0]] = when != ""
	}
	if len(theirs) < 170 {
		t.Fatalf("the list has only %d metrics", len(theirs))
	}
	for _, d := range metrics.Described() {
		if strings.HasPrefix(d.Name, "deckhand_") {
			continue
		}
		slices.Sort(d.Labels)
		labels := strings.Join(d.Labels, ",")
		if labels == "" {
			labels = "-"
		}
		if diff := cmp.Diff(theirs[d.Name], d.Type+" "+labels); diff != "" {
			t.Errorf("%s (-kubelet +deckhand):\n%s", d.Name, diff)
		}
		if later[d.Name] {
			t.Errorf("%s is here: the list says that it comes later", d.Name)
		}
		delete(theirs, d.Name)
	}
	for name := range theirs {
		if !later[name] {
			t.Errorf("%s isn't here, and the list doesn't say when it comes", name)
		}
	}
}
