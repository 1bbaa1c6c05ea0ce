package document_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/deckhand-node/deckhand/internal/config/document"
)

var update = flag.Bool("update", false, "write the golden files anew")

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// Each testdata/*.txtar holds a bad configuration file and what is said of it.
func TestGoldenErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			a := txtar.Parse(text)
			a.Files = append(a.Files[:1], txtar.File{Name: "errors", Data: []byte(report(a.Files[0].Data))})
			got := txtar.Format(a)
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(text), string(got)); diff != "" {
				t.Errorf("%s differs (-want +got); if that is meant, run with -update:\n%s", file, diff)
			}
		})
	}
}

func report(config []byte) string {
	var b strings.Builder
	_, errs := document.Decode(config)
	for _, e := range errs {
		fmt.Fprintln(&b, e)
	}
	return b.String()
}

func decode(t *testing.T, text string) *document.Document {
	t.Helper()
	doc, errs := document.Decode([]byte(text))
	if len(errs) > 0 {
		t.Fatalf("%v in:\n%s", errs, text)
	}
	return doc
}

// Reading field by field must come to what the usual reader of this API makes
// of a file.
func TestDecodeAgreesWithTheCommonReader(t *testing.T) {
	for name, text := range map[string]string{
		"flow style":    "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, clusterDNS: [10.0.0.10], maxPods: 0x10}",
		"json":          `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxOpenFiles":9007199254740993,"memoryThrottlingFactor":0.5}`,
		"old booleans":  head + "failSwapOn: no\nseccompDefault: on\nfeatureGates: {A: y}\n",
		"quoted words":  head + "evictionHard: {a: \"yes\", b: 'no'}\n",
		"aliases":       head + "evictionHard: &e {a: \"1\"}\nevictionSoft: *e\n",
		"nested":        head + "registerWithTaints: [{key: a, effect: NoSchedule, timeAdded: 2026-01-31T12:00:00Z}]\nreservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
		"trailing mark": head + "maxPods: 3\n---\n",
		"nulls":         head + "healthzPort: null\nstaticPodPath:\ntracing: ~\nclusterDNS: [null]\n",
		"log durations": head + "logging: {flushFrequency: 5000000000, options: {text: {infoBufferSize: 1k}}}\n",
		"numbers":       head + "maxPods: 110.0\nport: 1e3\nhealthzPort: 0755\nnodeStatusMaxImages: -0b11\nmemoryThrottlingFactor: 17016815086385787000\n",
		"empty ones":    head + "evictionHard: {}\nenforceNodeAllocatable: []\ntracing: {}\nresolvConf: ''\n",
		"mark at front": "\ufeff" + head + "maxPods: 3\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			doc := decode(t, text)
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

// What JSON may hold and YAML may not.
func TestDecodeReadsJSON(t *testing.T) {
	text := "{\n\t\"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\r\n\t\"kind\": \"KubeletConfiguration\",\n" +
		`"resolvConf": "\/etc\u002fx\\/\ud83d\ude00\n\"\\\/"` + ",\n\"address\": \"\u2028\u0085\ufffe\x7f\"" + ",\n\t\"maxPods\":3}"
	doc := decode(t, text)
	var want v1beta1.KubeletConfiguration
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, doc.Config); diff != "" {
		t.Errorf("(-JSON +Decode):\n%s", diff)
	}
	if line := doc.LineOf("maxPods"); line != 6 {
		t.Errorf("maxPods is in line %d, want 6", line)
	}
}

func TestLineOf(t *testing.T) {
	doc := decode(t, head+"logging:\n  verbosity: 1\nstaticPodURLHeader:\n  A:\n  - b\n  - c\nmaxPods: null\n")
	for path, want := range map[string]int{
		"kind": 2, "logging.verbosity": 4, "logging.format": 3, "staticPodURLHeader[A]": 6,
		"staticPodURLHeader[A][1]": 8, "staticPodURLHeader[B]": 5, "maxPods": 0, "port": 0,
	} {
		if got := doc.LineOf(path); got != want {
			t.Errorf("LineOf(%s) = %d, want %d", path, got, want)
		}
	}
	if doc.Given("logging.format") || !doc.Given("logging.verbosity") || doc.Given("maxPods") {
		t.Error("Given takes a parent for the field, misses the field, or takes null for a value")
	}
	var none *document.Document
	if none.Given("kind") || none.LineOf("kind") != 0 {
		t.Error("without a file nothing is given")
	}
}

func TestDecodeIsBounded(t *testing.T) {
	bomb := head + "evictionHard:\n  a0: &a0 x\n"
	for i := range 30 {
		bomb += fmt.Sprintf("  a%d: &a%d [*a%d, *a%d, *a%d]\n", i+1, i+1, i, i, i)
	}
	lists := head + "staticPodURLHeader:\n  a0: &l [" + strings.Repeat("x,", 1000) + "x]\n"
	for i := range 100 {
		lists += fmt.Sprintf("  b%d: *l\n", i)
	}
	for name, text := range map[string]string{
		"too big":             string(bytes.Repeat([]byte("a"), document.MaxSize+1)),
		"3^30 values":         bomb,
		"a list 100 times":    lists,
		"contains itself":     head + "evictionHard: &a {b: *a}\n",
		"list in itself":      head + "clusterDNS: &a [*a]\n",
		"100000 unknown ones": head + "a1: " + strings.Repeat("1\nb: ", 100_000) + "1\n",
	} {
		_, errs := document.Decode([]byte(text))
		if len(errs) == 0 || len(errs) > 250 {
			t.Errorf("%s: %d errors", name, len(errs))
		}
	}
}

// Headers to the manifest's URL are secrets (Authorization), however they are
// written; so is the URL, in which there may be a password.
func TestErrorsHoldNoSecret(t *testing.T) {
	for _, text := range []string{
		"staticPodURLHeader: {Authorization: Bearer hunter2}\n",
		"staticPodURLHeader: 'Authorization: Bearer hunter2'\n",
		"staticPodURLHeader: [hunter2]\n",
		"staticPodURLHeader: {Authorization: [[hunter2], {hunter2: x}]}\n",
		"staticPodURLHeader: {Authorization: [!!int hunter2]}\n",
		"staticPodURLHeader: {Authorization: ok, B: [\"hunter2\\n\"]}\n",
		"staticPodURL: !!int https://me:hunter2@host\n",
		"staticPodURL: [https://me:hunter2@host]\n",
	} {
		if report := report([]byte(head + text)); report == "" || strings.Contains(report, "hunter2") {
			t.Errorf("%s: the errors are %q", text, report)
		}
	}
}
