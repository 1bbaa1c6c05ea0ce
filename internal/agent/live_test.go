package agent

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/agent/cluster"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/rotate"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// others are values of the live fields that this build acts on, other than liveBase has.
var others = map[string]string{
	"serializeImagePulls":                        "true",
	"maxParallelImagePulls":                      "3",
	"registryPullQPS":                            "7",
	"registryBurst":                              "8",
	"imageMinimumGCAge":                          "1h",
	"imageMaximumGCAge":                          "9h",
	"imageGCHighThresholdPercent":                "99",
	"imageGCLowThresholdPercent":                 "9",
	"containerLogMaxSize":                        "1Mi",
	"containerLogMaxFiles":                       "9",
	"containerLogMaxWorkers":                     "9",
	"containerLogMonitorInterval":                "9s",
	"maxPods":                                    "9",
	"podsPerCore":                                "2",
	"crashLoopBackOff.maxContainerRestartPeriod": "9s",
	"evictionHard":                               "{memory.available: 9Mi}",
	"evictionSoft":                               "{memory.available: 9Mi}",
	"evictionSoftGracePeriod":                    "{memory.available: 9s}",
	"evictionMaxPodGracePeriod":                  "9",
	"evictionMinimumReclaim":                     "{memory.available: 9Mi}",
	"evictionPressureTransitionPeriod":           "9s",
	"mergeDefaultEvictionSettings":               "true",
	"systemReserved":                             "{memory: 9Mi}",
	"kubeReserved":                               "{memory: 9Mi}",
	"kubeAPIQPS":                                 "9",
	"kubeAPIBurst":                               "9",
	"eventRecordQPS":                             "9",
	"eventBurst":                                 "9",
	"logging.verbosity":                          "9",
	"logging.vmodule":                            "[{filePattern: a, verbosity: 9}]",
}

const liveBase = "serializeImagePulls: false\nevictionHard: {memory.available: 1Mi}\nevictionSoft: {memory.available: 1Mi}\nevictionSoftGracePeriod: {memory.available: 1s}"

// takenIn is all that a reload passes on (apply), or that is looked up in the
// configuration in force when it is needed.
func takenIn(t *testing.T, k *v1beta1.KubeletConfiguration) string {
	t.Helper()
	allocatables, err := allocatable(capacity.Node{CPUs: 4, Memory: 8 << 30}, k)
	if err != nil {
		t.Fatal(err)
	}
	log := logging.ConfigOf(&k.Logging, nil, nil)
	parallel, perSecond, burst := pull.LimitsOf(k)
	calls, events := cluster.Rates(k)
	evictions, err := pressure.SettingsOf(k)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(evictions, log.Verbosity, log.VModule, allocatables, parallel, perSecond, burst, gc.PolicyOf(k), rotate.ConfigOf("/", k), worker.MaxBackoff(k), calls, events)
}

// A field that is said to be reloaded, and isn't passed on, would be ignored in silence.
func TestLiveFieldsAreTakenIn(t *testing.T) {
	base := takenIn(t, read(t, liveBase))
	tried := map[string]bool{}
	for _, f := range fields.All() {
		if !f.Live || f.Package == "" {
			continue
		}
		value, ok := others[f.Path]
		if !ok {
			t.Errorf("%s: have it taken in by apply and by takenIn, and try it here", f.Path)
			continue
		}
		tried[f.Path] = true
		names := strings.Split(f.Path, ".")
		line := strings.Join(names, ": {") + ": " + value + strings.Repeat("}", len(names)-1)
		if takenIn(t, read(t, liveBase, line)) == base {
			t.Errorf("%s is said to be live, but nobody hears of a change to %s", f.Path, value)
		}
	}
	for path := range others {
		if !tried[path] {
			t.Errorf("%s isn't live any more", path)
		}
	}
}

// read lays documents of these lines over each other.
func read(t *testing.T, lines ...string) *v1beta1.KubeletConfiguration {
	t.Helper()
	m := document.NewMerged()
	for i, line := range lines {
		doc, errs := document.Decode([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + line + "\n"))
		if len(errs) > 0 {
			t.Fatal(line, errs)
		}
		m.Lay(document.File, fmt.Sprint(i), doc)
	}
	config.SetDefaults(m.Config())
	return m.Config()
}

// TestExposuresAreLogged once, at start, and what is new after a reload.
func TestExposuresAreLogged(t *testing.T) {
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	a, b := config.Exposure{Path: "a", Message: "everybody"}, config.Exposure{Path: "b", Message: "anybody"}
	before := &config.Config{Exposures: []config.Exposure{a}}
	logNotes(log, before, nil)
	logNotes(log, &config.Config{Exposures: []config.Exposure{a, b}}, before)
	if len(logged) != 2 || !strings.Contains(logged[0], `"setting"="a" "message"="everybody"`) || !strings.Contains(logged[1], `"setting"="b"`) {
		t.Errorf("%q", logged)
	}
}
