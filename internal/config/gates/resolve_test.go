package gates_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/config/gates"
)

func TestDefaults(t *testing.T) {
	s, problems := gates.Resolve(nil)
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	for _, st := range s.All() {
		if st.On != st.Default || st.Given || s.Enabled(st.Name) != st.Default {
			t.Errorf("%s is %t, given %t; the default is %t", st.Name, st.On, st.Given, st.Default)
		}
	}
	if s.Enabled("Other") || (gates.Set{}).Enabled(gates.MemoryQoS) {
		t.Error("a gate is on that isn't there")
	}
	if len(s.NotActedOn())+len(s.Retiring()) > 0 {
		t.Errorf("notes on nothing: %v %v", s.NotActedOn(), s.Retiring())
	}
}

func TestGivenOnesWinOverTogether(t *testing.T) {
	s, problems := gates.Resolve(map[string]bool{"AllAlpha": true, "MemoryQoS": false, "AllBeta": false, "EnvFiles": true,
		"UserNamespacesHostNetworkSupport": false, "StorageVersionAPI": false, "PodLevelResourceManagers": false})
	if len(problems) > 0 {
		t.Fatalf("problems: %v", problems)
	}
	for name, want := range map[string]bool{
		"MemoryQoS": false, "EventedPLEG": true, // alpha
		"EnvFiles": true, "PodLevelResources": false, "PodCertificateRequest": false, // beta
		"SidecarContainers": true, "KMSv1": false, // neither
		"AllAlpha": true, "AllBeta": false,
	} {
		if s.Enabled(name) != want {
			t.Errorf("%s isn't %t", name, want)
		}
	}
}

func TestAnEmptyNameIsNoStage(t *testing.T) {
	s, problems := gates.Resolve(map[string]bool{"": false})
	if len(problems) != 1 || !s.Enabled("SidecarContainers") {
		t.Errorf("%v; SidecarContainers is %t", problems, s.Enabled("SidecarContainers"))
	}
}

func TestProblems(t *testing.T) {
	const (
		none   = "unknown feature gate: kubelet 1.36 has none of that name; if it belongs to a feature that has long been stable, leave it out"
		locked = "can't be false: the gate is GA and locked to true; leave it out"
	)
	for name, c := range map[string]struct {
		wanted map[string]bool
		want   []gates.Problem
	}{
		"all at once, sorted": {
			map[string]bool{"SidecarContainers": false, "GitRepoVolumeDriver": true, "EnvFile": true, "CPUManager": true, "ImageVolume": true},
			[]gates.Problem{
				{"CPUManager", none},
				{"EnvFile", "unknown feature gate; did you mean EnvFiles?"},
				{"GitRepoVolumeDriver", "can't be true: the gate is DEPRECATED and locked to false; leave it out"},
				{"SidecarContainers", locked},
			},
		},
		"near": {
			map[string]bool{"memoryqos": true, "PodsApi": true, "InPlaceVerticalScaling": true, "KubeletEnsureSecretPulledImage": true, "x": true, strings.Repeat("x", 500): true},
			[]gates.Problem{
				{"InPlaceVerticalScaling", "unknown feature gate; did you mean InPlacePodVerticalScaling?"},
				{"KubeletEnsureSecretPulledImage", "unknown feature gate; did you mean KubeletEnsureSecretPulledImages?"},
				{"PodsApi", "unknown feature gate; did you mean PodsAPI?"},
				{"memoryqos", "unknown feature gate; did you mean MemoryQoS?"},
				{"x", none},
				{strings.Repeat("x", 500), none},
			},
		},
		"needed by one that is on by default": {
			map[string]bool{"PodLevelResources": false},
			[]gates.Problem{{"PodLevelResources", "InPlacePodLevelResourcesVerticalScaling (on by default) needs PodLevelResources (off): have both on, or both off"}},
		},
		"needs one that is off by default": {
			map[string]bool{"GangScheduling": true},
			[]gates.Problem{{"GangScheduling", "GangScheduling (on) needs GenericWorkload (off by default): have both on, or both off"}},
		},
		"both given": {
			map[string]bool{"RestartAllContainersOnContainerExits": true, "ContainerRestartRules": false},
			[]gates.Problem{{"RestartAllContainersOnContainerExits", "RestartAllContainersOnContainerExits (on) needs ContainerRestartRules (off): have both on, or both off"}},
		},
		"together": {
			map[string]bool{"AllAlpha": true, "AllBeta": false, "APIServerIdentity": true, "UserNamespacesHostNetworkSupport": false},
			[]gates.Problem{{"AllAlpha", "PodLevelResourceManagers (on with AllAlpha) needs PodLevelResources (off with AllBeta): have both on, or both off"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := gates.Resolve(c.wanted)
			if diff := cmp.Diff(c.want, problems); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Names without end are reported, but what was meant isn't looked for without end.
func TestGuessesAreBounded(t *testing.T) {
	const names = 20_000 // of one file; each guess takes milliseconds
	wanted := map[string]bool{}
	for i := range names {
		wanted[fmt.Sprintf("EnvFiles%d", i)] = true
	}
	_, problems := gates.Resolve(wanted)
	guesses := 0
	for _, p := range problems {
		if strings.Contains(p.Message, "did you mean EnvFiles?") {
			guesses++
		}
	}
	if len(problems) != names || guesses == 0 || guesses > 100 {
		t.Errorf("%d problems, %d guesses", len(problems), guesses)
	}
}

// What is refused doesn't count.
func TestLockedStaysAsItIs(t *testing.T) {
	s, problems := gates.Resolve(map[string]bool{"SidecarContainers": false})
	if len(problems) != 1 || !s.Enabled("SidecarContainers") {
		t.Errorf("%v; it is %t", problems, s.Enabled("SidecarContainers"))
	}
}

// The library that the kubelet uses accepts the same wishes, and makes the same of them.
func TestResolvesAsTheLibraryDoes(t *testing.T) {
	all := gates.All()
	names := make([]string, 0, len(all)+2)
	for _, g := range all {
		names = append(names, g.Name)
	}
	names = append(names, "Unknown", gates.AllAlpha, gates.AllBeta)
	rapid.Check(t, func(t *rapid.T) {
		wanted := rapid.MapOfN(rapid.SampledFrom(names), rapid.Bool(), 0, 6).Draw(t, "wanted")
		s, problems := gates.Resolve(wanted)
		for _, p := range problems {
			if _, given := wanted[p.Gate]; !given {
				t.Errorf("a problem with %s, which nobody gave: %s", p.Gate, p.Message)
			}
		}
		f := library(t, all)
		if err := f.SetFromMapWithLogger(logr.Discard(), wanted); (err != nil) != (len(problems) > 0) {
			t.Fatalf("library: %v; here: %v", err, problems)
		} else if err != nil {
			return
		}
		for _, st := range s.All() {
			if on := f.Enabled(featuregate.Feature(st.Name)); st.On != on {
				t.Errorf("%s is %t, in the library %t", st.Name, st.On, on)
			}
		}
	})
}

type libraryGate interface {
	featuregate.FeatureGate
	featuregate.MutableFeatureGateWithLogger
}

func library(t *rapid.T, all []gates.Gate) libraryGate {
	specs, needs := map[featuregate.Feature]featuregate.FeatureSpec{}, map[featuregate.Feature][]featuregate.Feature{}
	for _, g := range all {
		spec := featuregate.FeatureSpec{Default: g.Default, LockToDefault: g.Locked}
		switch g.Stage {
		case gates.Alpha:
			spec.PreRelease = featuregate.Alpha
		case gates.Beta:
			spec.PreRelease = featuregate.Beta
		case gates.Deprecated:
			spec.PreRelease = featuregate.Deprecated
		}
		specs[featuregate.Feature(g.Name)] = spec
		for _, need := range g.Needs {
			needs[featuregate.Feature(g.Name)] = append(needs[featuregate.Feature(g.Name)], featuregate.Feature(need))
		}
	}
	f := featuregate.NewVersionedFeatureGate(version.MajorMinor(1, 36))
	if err := f.Add(specs); err != nil {
		t.Fatal(err)
	}
	if err := f.AddDependencies(needs); err != nil {
		t.Fatal(err)
	}
	return f
}

func BenchmarkResolve(b *testing.B) {
	wanted := map[string]bool{gates.MemoryQoS: true, gates.AllBeta: true}
	b.ReportAllocs()
	for b.Loop() {
		if s, _ := gates.Resolve(wanted); !s.Enabled(gates.MemoryQoS) {
			b.Fatal("off")
		}
	}
}
