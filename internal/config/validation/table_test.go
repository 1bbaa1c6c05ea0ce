package validation_test

import (
	"flag"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/goldentest"
)

var update = flag.Bool("update", false, "write the golden file anew")

// validationCase is a piece of a configuration file, and the fields that are wrong about it.
type validationCase struct {
	text  string
	wrong string // separated by spaces; empty if it is valid
}

// table is every area's.
func table() []validationCase {
	return slices.Concat(sourceCases, servingCases, nodeCases, runtimeCases, imageCases, logCases,
		cgroupCases, reservationCases, managerCases, evictionCases, shutdownCases, hostCases)
}

// someGates are the gates that a configuration sets; of the others, the beta ones are on.
type someGates map[string]bool

func (g someGates) Enabled(name string) bool {
	on, given := g[name]
	return on || !given && !strings.Contains(name, "Alpha") && name != "MemoryQoS"
}

func read(t *testing.T, text string) *v1beta1.KubeletConfiguration {
	t.Helper()
	var c v1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict([]byte(text), &c); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &c
}

func TestValidate(t *testing.T) {
	var messages strings.Builder
	for _, v := range table() {
		c := read(t, v.text)
		config.SetDefaults(c)
		errs := validation.Validate(c, someGates(c.FeatureGates))
		var wrong []string
		for _, e := range errs {
			wrong = append(wrong, e.Field)
		}
		if got := strings.Join(wrong, " "); got != v.wrong {
			t.Errorf("%s\nwrong are %q, want %q: %v", v.text, got, v.wrong, errs)
		}
		if len(errs) > 0 {
			fmt.Fprintf(&messages, "%s\n", v.text)
		}
		for _, e := range errs {
			fmt.Fprintf(&messages, "    %v\n", e)
		}
	}
	goldentest.Compare(t, "testdata/messages.txt", messages.String(), *update)
}

// anyValue are the fields that nothing can be wrong about here, and why.
var anyValue = map[string]string{
	"kind":                             "read with the file",
	"apiVersion":                       "read with the file",
	"featureGates":                     "package gates knows their names",
	"enableServer":                     "a switch",
	"rotateCertificates":               "a switch",
	"authentication.webhook.enabled":   "a switch; whether there is an API server to ask is seen at start",
	"authentication.anonymous.enabled": "a switch",
	"serializeImagePulls":              "a switch; what contradicts it is maxParallelImagePulls",
	"enableDebuggingHandlers":          "a switch",
	"enableContentionProfiling":        "a switch; without enableDebuggingHandlers it has no effect, as documented",
	"enableProfilingHandler":           "a switch",
	"enableDebugFlagsHandler":          "a switch",
	"enableSystemLogHandler":           "a switch; what contradicts it is enableSystemLogQuery",
	"streamingConnectionIdleTimeout":   "documented to have no effect",
	"volumeStatsAggPeriod":             "the kubelet documents that less than 0 turns it off (--volume-stats-agg-period)",
	"singleProcessOOMKill":             "a switch; that cgroup v1 can't do without it is seen on the host",
	"runOnce":                          "a switch; the kubelet has given it up, deckhand hasn't",
	"cpuCFSQuota":                      "a switch",
	"podPidsLimit":                     "0 and less is no limit, as in the kubelet",
	"evictionMaxPodGracePeriod":        "less than 0 means the pod's own, as the kubelet documents (--eviction-max-pod-grace-period)",
	"mergeDefaultEvictionSettings":     "a switch",
	"enableControllerAttachDetach":     "a switch",
	"protectKernelDefaults":            "a switch",
	"makeIPTablesUtilChains":           "a switch",
	"failSwapOn":                       "a switch",
	"failCgroupV1":                     "a switch",
	"providerID":                       "providers make up its form",
	"kernelMemcgNotification":          "a switch",
	"logging.options.text.splitStream": "a switch; the kubelet takes it without its gate as well",
	"logging.options.json.splitStream": "a switch; the kubelet takes it without its gate as well",
	"seccompDefault":                   "a switch",
	"registerNode":                     "a switch",
	"localStorageCapacityIsolation":    "a switch",
}

var index = regexp.MustCompile(`\[[^]]*\]`)

// Each field has a value that is refused and one that is accepted, or a reason why any
// value is good.
func TestEveryFieldHasACase(t *testing.T) {
	refused, accepted := map[string]bool{}, map[string]bool{}
	for _, v := range table() {
		for path := range strings.FieldsSeq(v.wrong) {
			refused[index.ReplaceAllString(path, "")] = true
		}
		if v.wrong == "" {
			given(reflect.ValueOf(read(t, v.text)).Elem(), "", accepted)
		}
	}
	fields := leaves(reflect.TypeFor[v1beta1.KubeletConfiguration](), "")
	for _, path := range fields {
		_, free := anyValue[path]
		switch {
		case free && refused[path]:
			t.Errorf("%s is said to be good whatever its value, and is refused", path)
		case free:
		case !refused[path]:
			t.Errorf("no value of %s is refused: add one, or say why any is good", path)
		case !accepted[path] && path != "registerWithTaints.timeAdded": // which isn't a person's to set
			t.Errorf("no value of %s is accepted: add one", path)
		}
	}
	for path := range anyValue {
		if !slices.Contains(fields, path) {
			t.Errorf("%s is no field", path)
		}
	}
}

func TestThePreviousMinorIsThatOfTheKubelet(t *testing.T) {
	var minor int
	if _, err := fmt.Sscanf(buildinfo.Kubernetes, "v1.%d.", &minor); err != nil {
		t.Fatal(err)
	}
	c := read(t, fmt.Sprintf("showHiddenMetricsForVersion: '1.%d'", minor-1))
	config.SetDefaults(c)
	if errs := validation.Validate(c, someGates{}); len(errs) > 0 {
		t.Error(errs)
	}
}

// Headers to the manifest's URL, and its password, are secrets.
func TestSecretsAreNotRepeated(t *testing.T) {
	c := read(t, `{staticPodURL: "ftp://user:hunter2@host", staticPodURLHeader: {Authorization: ["hunter2\n"]}}`)
	config.SetDefaults(c)
	errs := validation.Validate(c, someGates{})
	if text := fmt.Sprint(errs); len(errs) != 2 || strings.Contains(text, "hunter2") {
		t.Errorf("the errors are %s", text)
	}
}
