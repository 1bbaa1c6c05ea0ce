package kubeletconfig_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/kubeletconfig"
)

// Each testdata/*.txtar holds a configuration file and what is to be said of
// it: "errors" from Decode, or, where there are none, from Validate.
func TestGoldenErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a.Files = a.Files[:1]
			a.Files = append(a.Files, txtar.File{Name: "errors", Data: []byte(report(a.Files[0].Data))})
			golden(t, filepath.Base(file), txtar.Format(a))
		})
	}
}

func report(config []byte) string {
	var b strings.Builder
	doc, errs := kubeletconfig.Decode(config)
	for _, e := range errs {
		fmt.Fprintln(&b, e)
	}
	if len(errs) > 0 {
		return b.String()
	}
	kubeletconfig.SetDefaults(&doc.Config)
	for _, e := range kubeletconfig.Validate(&doc.Config) {
		fmt.Fprintf(&b, "line %d: %v\n", doc.LineOf(e.Field), e)
	}
	return b.String()
}

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Reading field by field must come to what the usual reader of this API makes
// of a file.
func TestDecodeAgreesWithTheCommonReader(t *testing.T) {
	text, err := os.ReadFile("testdata/defaults.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"every default": head + string(text),
		"flow style":    "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, clusterDNS: [10.0.0.10], maxPods: 0x10}",
		"json":          `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxOpenFiles":9007199254740993,"memoryThrottlingFactor":0.5}`,
		"old booleans":  head + "failSwapOn: no\nseccompDefault: on\n",
		"aliases":       head + "evictionHard: &e {a: \"1\"}\nevictionSoft: *e\n",
		"nested":        head + "registerWithTaints: [{key: a, effect: NoSchedule}]\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
		"trailing mark": head + "maxPods: 3\n---\n",
		"nulls":         head + "healthzPort: null\nstaticPodPath:\n",
		"log durations": head + "logging: {flushFrequency: 5000000000}\n",
	} {
		t.Run(name, func(t *testing.T) {
			doc, errs := kubeletconfig.Decode([]byte(text))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := reflect.New(reflect.TypeOf(doc.Config)).Interface()
			if err := yaml.Unmarshal([]byte(text), want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, &doc.Config); diff != "" {
				t.Errorf("(-common reader +Decode):\n%s", diff)
			}
		})
	}
}

func TestLineOf(t *testing.T) {
	doc, errs := kubeletconfig.Decode([]byte(head + "logging:\n  verbosity: 1\nstaticPodURLHeader:\n  A: [b]\n"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for path, want := range map[string]int{"kind": 2, "logging.verbosity": 4, "logging.format": 3, "maxPods": 0, "staticPodURLHeader[A]": 5} {
		if got := doc.LineOf(path); got != want {
			t.Errorf("LineOf(%s) = %d, want %d", path, got, want)
		}
	}
	if doc.Given("logging.format") || !doc.Given("logging.verbosity") {
		t.Error("Given takes a parent for the field, or misses the field")
	}
	var none *kubeletconfig.Document
	if none.Given("kind") || none.LineOf("kind") != 0 {
		t.Error("without a file nothing is given")
	}
}

func TestDecodeIsBounded(t *testing.T) {
	if _, errs := kubeletconfig.Decode(bytes.Repeat([]byte("a"), kubeletconfig.MaxSize+1)); len(errs) != 1 {
		t.Errorf("a file too big: %v", errs)
	}
	bomb := head + "evictionHard:\n  a0: &a0 x\n"
	for i := range 30 {
		bomb += fmt.Sprintf("  a%d: &a%d [*a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i)
	}
	if _, errs := kubeletconfig.Decode([]byte(bomb)); len(errs) == 0 {
		t.Error("3^30 values were taken")
	}
	if _, errs := kubeletconfig.Decode([]byte(head + "evictionHard: &a {b: *a}\n")); len(errs) == 0 {
		t.Error("a value that contains itself was taken")
	}
}

func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		a, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(a.Files[0].Data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, errs := kubeletconfig.Decode(data)
		for _, e := range errs {
			if e.Message == "" || e.Line < 0 || e.Line > math.MaxInt32 {
				t.Fatalf("an error nobody can act on: %#v", e)
			}
			if e.Path == "" && e.Line == 0 && !strings.HasPrefix(e.Message, "it ") {
				t.Fatalf("an error without a place: %#v", e)
			}
		}
		doc.NotActedOn()
		kubeletconfig.SetDefaults(&doc.Config)
		for _, e := range kubeletconfig.Validate(&doc.Config) {
			if e.Field == "" {
				t.Fatalf("a validation error without a path: %v", e)
			}
		}
	})
}

// Headers to the manifest's URL are secrets (Authorization), however they are written.
func TestErrorsHoldNoHeader(t *testing.T) {
	for _, text := range []string{
		"staticPodURLHeader: {Authorization: Bearer hunter2}\n",
		"staticPodURLHeader: 'Authorization: Bearer hunter2'\n",
		"staticPodURLHeader: [hunter2]\n",
		"staticPodURLHeader: {Authorization: [[hunter2], {hunter2: x}]}\n",
		"staticPodURLHeader: {Authorization: [!!int hunter2]}\n",
		"staticPodURLHeader: {Authorization: [\"hunter2\\n\"]}\n",
	} {
		if told := report([]byte(head + text)); told == "" || strings.Contains(told, "hunter2") {
			t.Errorf("%s: the errors are %q", text, told)
		}
	}
}
