package fields_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func all() []fields.Entry { return fields.Entries(config.SetDefaults) }

func TestText(t *testing.T) {
	var out bytes.Buffer
	if err := fields.Text(&out, all(), 100); err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/fields.txt", out.String(), *update)
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var out bytes.Buffer
	if err := fields.Markdown(&out, all()); err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/fields.md", out.String(), *update)
	for line := range strings.Lines(out.String()) {
		cells := strings.Count(line, "|") - strings.Count(line, `\|`) - 1
		if strings.HasPrefix(line, "|") && cells != 5 {
			t.Errorf("%d cells: %s", cells, line)
		}
	}
}

// The JSON is read by programs: every field is there, under names that stay.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := fields.JSON(&out, all()); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	if err := json.Unmarshal(out.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != len(fields.All()) {
		t.Errorf("%d objects for %d fields", len(list), len(fields.All()))
	}
	some, err := fields.Select(all(), "memoryThrottlingFactor", "maxPods", "evictionSoft", "podCIDR")
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := fields.JSON(&out, some); err != nil {
		t.Fatal(err)
	}
	goldentest.Compare(t, "testdata/some.json", out.String(), *update)
	out.Reset()
	if err := fields.JSON(&out, nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("nothing is %q, %v; want an empty list", out.String(), err)
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{"logging.options"}, "logging.options.text.splitStream logging.options.text.infoBufferSize logging.options.json.splitStream logging.options.json.infoBufferSize"},
		{[]string{"maxPods"}, "maxPods"},
		{[]string{"imageGC"}, "imageGCHighThresholdPercent imageGCLowThresholdPercent"},
		{[]string{"evictionHard[memory.available]"}, "evictionHard"},
		{[]string{"featureGates.MemoryQoS"}, "featureGates"},
		{[]string{"reservedMemory[0].numaNode"}, "reservedMemory"},
		{[]string{"tracing", "tracing.endpoint", "kind"}, "tracing.endpoint tracing.samplingRatePerMillion kind"},
	} {
		entries, err := fields.Select(all(), c.paths...)
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(strings.Fields(c.want), paths(entries)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.paths, diff)
		}
	}
	if entries, err := fields.Select(all()); err != nil || len(entries) != len(fields.All()) {
		t.Errorf("without paths there are %d entries, %v; want all", len(entries), err)
	}
}

func TestUnknownPaths(t *testing.T) {
	for path, want := range map[string]string{
		"evictonHard":             `there is no field "evictonHard"; did you mean evictionHard?`,
		"EvictionHard":            `there is no field "EvictionHard"; did you mean evictionHard?`,
		"maxpods":                 `there is no field "maxpods"; did you mean maxPods?`,
		"verbosity":               `there is no field "verbosity"; did you mean logging.verbosity?`,
		"clientCAFile":            `there is no field "clientCAFile"; did you mean authentication.x509.clientCAFile?`,
		"loging":                  `there is no field "loging"; did you mean logging?`,
		"maxPods.x":               `there is no field "maxPods.x"; did you mean maxPods?`,
		"maxPods[0]":              `there is no field "maxPods[0]"; did you mean maxPods?`,
		"colour":                  `there is no field "colour"; without a path all fields are listed`,
		"":                        `there is no field ""; without a path all fields are listed`,
		strings.Repeat("p", 1000): `there is no field "` + strings.Repeat("p", 1000) + `"; without a path all fields are listed`,
	} {
		_, err := fields.Select(all(), "kind", path)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", path, err, want)
		}
	}
}

// What the reference has as a default is what the configuration comes to.
func TestDefaults(t *testing.T) {
	want := map[string]string{
		"streamingConnectionIdleTimeout":      "4h",
		"nodeStatusUpdateFrequency":           "10s",
		"nodeStatusReportFrequency":           "5m; that of nodeStatusUpdateFrequency, if it is set",
		"evictionHard":                        "imagefs.available: 15%, imagefs.inodesFree: 5%, memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%",
		"enforceNodeAllocatable":              "pods",
		"cpuCFSQuotaPeriod":                   "100ms",
		"userNamespaces.idsPerPod":            "65536",
		"logging.flushFrequency":              "5s",
		"logging.options.json.infoBufferSize": "0",
		"memoryThrottlingFactor":              "0.9",
		"kubeletCgroups":                      "where it was started",
		"enableServer":                        "true",
		"imageMaximumGCAge":                   "0s",
	}
	for _, e := range all() {
		if text, ok := want[e.Field.Path]; ok && e.Default != text {
			t.Errorf("%s: %q, want %q", e.Field.Path, e.Default, text)
		}
		delete(want, e.Field.Path)
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

func paths(entries []fields.Entry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, e.Field.Path)
	}
	return list
}
