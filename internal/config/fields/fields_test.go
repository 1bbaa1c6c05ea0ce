package fields

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// internal is the directory of all packages.
const internal = "../.."

func TestEveryFieldHasOneEntry(t *testing.T) {
	entries := map[string]int{}
	for _, f := range All() {
		entries[f.Path]++
	}
	for path, n := range entries {
		if n > 1 {
			t.Errorf("%s has %d entries", path, n)
		}
	}
	for _, l := range leaves() {
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
	for _, f := range All() {
		if (f.Package == "") != (f.Why != "") {
			t.Errorf("%s: package %q and why %q: one of them says what becomes of it", f.Path, f.Package, f.Why)
		}
		if f.Partly != "" && f.Package == "" {
			t.Errorf("%s is acted on in part, but nowhere", f.Path)
		}
		if f.Idle != "" && f.Why == "" && f.Partly == "" && !f.Cluster {
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

// under is the name of fields that come to what acts on them in another form than the API's.
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
// package does, or for it the composition root or the commands that run the agent.
func TestPackagesReadTheirFields(t *testing.T) {
	agent := sourceText(t, filepath.Join(internal, "agent")) + sourceText(t, filepath.Join(internal, "../cmd/deckhand/command"))
	packages := map[string]string{}
	names := map[string]string{}
	for _, l := range leaves() {
		names[l.Path] = l.Name
	}
	for _, f := range All() {
		if f.Package == "" {
			continue
		}
		if _, ok := packages[f.Package]; !ok {
			packages[f.Package] = sourceText(t, filepath.Join(internal, f.Package))
			if packages[f.Package] == "" {
				t.Errorf("%s: there is no code in internal/%s", f.Path, f.Package)
			}
		}
		name := names[f.Path]
		mention := regexp.MustCompile(`\.` + name + `\b`)
		if other := under(f.Path); other != "" {
			name, mention = other, regexp.MustCompile(regexp.QuoteMeta(other))
		}
		reads := mention.MatchString(agent) || mention.MatchString(packages[f.Package])
		if !reads {
			t.Errorf("%s is said to be acted on by internal/%s, but neither that nor internal/agent nor cmd/deckhand/command mentions %s", f.Path, f.Package, name)
		}
	}
}

// sourceText is all code in a directory, without tests and without this table.
func sourceText(t *testing.T, dir string) string {
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
		f, ok := Of(path)
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
		kubeAPIBurst kubeAPIQPS kubeReserved logging.verbosity logging.vmodule maxParallelImagePulls maxPods mergeDefaultEvictionSettings
		podsPerCore registryBurst registryPullQPS serializeImagePulls systemReserved`)
	var got []string
	for _, f := range All() {
		if f.Live {
			got = append(got, f.Path)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}
