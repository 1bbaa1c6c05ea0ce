package fields_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/fields/leaves"
)

// internal is the folder of all packages.
const internal = "../.."

func TestEveryFieldHasOneEntry(t *testing.T) {
	entries := map[string]int{}
	for _, f := range fields.All() {
		entries[f.Path]++
	}
	for path, n := range entries {
		if n > 1 {
			t.Errorf("%s has %d entries", path, n)
		}
	}
	for _, l := range leaves.All() {
		if entries[l.Path] == 0 {
			t.Errorf("%s has no entry: say what it means, and whether this build acts on it", l.Path)
		}
		delete(entries, l.Path)
	}
	for path := range entries {
		t.Errorf("%s is in the table, but is no field of the API type", path)
	}
}

func TestEntriesAreWhole(t *testing.T) {
	for _, f := range fields.All() {
		if (f.Room == "") != (f.Why != "") {
			t.Errorf("%s: room %q and why %q: one of them says what becomes of it", f.Path, f.Room, f.Why)
		}
		if f.Partly != "" && f.Room == "" {
			t.Errorf("%s is acted on in part, but nowhere", f.Path)
		}
		if f.NextStart && (!f.Live || f.Room == "") {
			t.Errorf("%s: that it counts from the next start is worth saying only of what is acted on and can be reloaded", f.Path)
		}
		if f.Idle != "" && f.Why == "" && f.Partly == "" {
			t.Errorf("%s: all of it is acted on, so %q is nothing special", f.Path, f.Idle)
		}
		if !strings.HasSuffix(f.Doc, ".") || len(f.Doc) > 320 {
			t.Errorf("%s: the doc must be of whole sentences, and short: %q", f.Path, f.Doc)
		}
		for _, phrase := range []string{f.Why, f.Partly, f.Departs, f.Default} {
			if strings.HasSuffix(phrase, ".") {
				t.Errorf("%s: %q is put into a sentence, it mustn't end with a full stop", f.Path, phrase)
			}
		}
	}
}

// under tells of fields that come to what acts on them in another form than the API's.
func under(path string) string {
	return map[string]string{
		"podCIDR":             "Embedded.PodCIDRs",
		"containerLogMaxSize": "ContainerLogMaxBytes(",
		"healthzPort":         "cfg.Healthz",
		"healthzBindAddress":  "cfg.Healthz",
		"readOnlyPort":        "cfg.ReadOnly",
		"address":             "cfg.ReadOnly",
	}[path]
}

// The table can't claim that something acts on a field if nothing reads it: either its
// room does, or the composition root for it.
func TestRoomsReadTheirFields(t *testing.T) {
	agent := sources(t, filepath.Join(internal, "agent"))
	rooms := map[string]string{}
	names := map[string]string{}
	for _, l := range leaves.All() {
		names[l.Path] = l.Name
	}
	for _, f := range fields.All() {
		if f.Room == "" {
			continue
		}
		if _, ok := rooms[f.Room]; !ok {
			rooms[f.Room] = sources(t, filepath.Join(internal, f.Room))
			if rooms[f.Room] == "" {
				t.Errorf("%s: there is no code in internal/%s", f.Path, f.Room)
			}
		}
		name := names[f.Path]
		mention := regexp.MustCompile(`\.` + name + `\b`)
		if other := under(f.Path); other != "" {
			name, mention = other, regexp.MustCompile(regexp.QuoteMeta(other))
		}
		reads := mention.MatchString(agent) || mention.MatchString(rooms[f.Room])
		if !reads {
			t.Errorf("%s is said to be acted on by internal/%s, but neither that nor internal/agent mentions %s", f.Path, f.Room, name)
		}
	}
}

// sources is all code in a folder, without tests and without this table.
func sources(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == "testdata" || e.Name() == "fields") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Errorf("%v", err)
	}
	return all.String()
}

func TestOf(t *testing.T) {
	for path, want := range map[string]string{
		"evictionHard[memory.available]":      "evictionHard",
		"featureGates.MemoryQoS":              "featureGates",
		"reservedMemory[0].limits[memory]":    "reservedMemory",
		"logging.options.text.splitStream":    "logging.options.text.splitStream",
		"authentication.x509.clientCAFile":    "authentication.x509.clientCAFile",
		"staticPodURLHeader[Authorization][]": "staticPodURLHeader",
		"logging":                             "", // lies above its fields
		"nothing":                             "",
		"":                                    "",
		"[0]":                                 "",
	} {
		f, ok := fields.Of(path)
		if ok != (want != "") || f.Path != want {
			t.Errorf("%q: %q, %v; want %q", path, f.Path, ok, want)
		}
	}
}

// What is said to be changed live is what the documentation promises (README, issue of
// the reload): a field more or less is a decision.
func TestLiveFields(t *testing.T) {
	want := strings.Fields(`containerLogMaxFiles containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval
		crashLoopBackOff.maxContainerRestartPeriod eventBurst eventRecordQPS
		evictionHard evictionMaxPodGracePeriod evictionMinimumReclaim evictionPressureTransitionPeriod evictionSoft evictionSoftGracePeriod
		imageGCHighThresholdPercent imageGCLowThresholdPercent imageMaximumGCAge imageMinimumGCAge
		kubeAPIBurst kubeAPIQPS logging.verbosity logging.vmodule maxParallelImagePulls maxPods mergeDefaultEvictionSettings
		podsPerCore registryBurst registryPullQPS serializeImagePulls`)
	var got []string
	for _, f := range fields.All() {
		if f.Live {
			got = append(got, f.Path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
