package manifest

import (
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func objectText(kind, rest string) string {
	return "apiVersion: " + object.Kind(kind).APIVersion() + "\nkind: " + kind + "\n" + rest
}

var objectCases = []decodeCase{
	{"all kinds beside a pod", good + "---\n" +
		objectText("ConfigMap", "metadata: {name: c, namespace: ns}\ndata: {a: b}\nbinaryData: {k: AAE=}\n") + "---\n" +
		objectText("Secret", "metadata: {name: s}\ntype: Opaque\ndata: {a: aGk=}\nstringData: {b: x}\nimmutable: true\n") + "---\n" +
		objectText("Service", "metadata: {name: svc}\nspec: {ports: [{port: 80, targetPort: http}]}\nstatus: {}\n") + "---\n" +
		objectText("ServiceAccount", "metadata: {name: sa}\nimagePullSecrets: [{name: s}]\n") + "---\n" +
		objectText("RuntimeClass", "metadata: {name: kata}\nhandler: kata\noverhead: {podFixed: {cpu: 10m}}\nscheduling: {tolerations: [{operator: Exists}]}\n") + "---\n" +
		objectText("PersistentVolume", "metadata: {name: disk}\nspec: {capacity: {storage: 1Gi}, local: {path: /mnt/disk}}\n") + "---\n" +
		objectText("PersistentVolumeClaim", "metadata: {name: data}\nspec: {resources: {requests: {storage: 1}}}\n") + "---\n" +
		objectText("CSIDriver", "metadata: {name: csi.example.com}\nspec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}\n"),
		`1 line 1 name="default/web" pod=true
2 line 17 ConfigMap="ns/c" object=true
3 line 23 Secret="default/s" object=true
4 line 31 Service="default/svc" object=true
5 line 37 ServiceAccount="default/sa" object=true
6 line 42 RuntimeClass="kata" object=true
7 line 49 PersistentVolume="disk" object=true
8 line 54 PersistentVolumeClaim="default/data" object=true
9 line 59 CSIDriver="csi.example.com" object=true`},
	{"a driver that is misspelt", objectText("CSIDriver", "metadata: {name: a}\nspec:\n  attachRequird: false\n  podInfoOnMount: 'yes'\n  tokenRequests: {audience: a}\n") +
		"---\napiVersion: storage.k8s.io/v1beta1\nkind: CSIDriver\nmetadata: {name: b}\n",
		`1 line 1 CSIDriver="a" object=false
  line 5: spec.attachRequird: unknown field; did you mean "attachRequired"?
  line 6: spec.podInfoOnMount: is a string ("yes"), but must be true or false
  line 7: spec.tokenRequests: is an object, but must be a list
2 line 9 CSIDriver="b" object=false
  line 9: apiVersion: apiVersion is storage.k8s.io/v1beta1, but must be storage.k8s.io/v1 for a CSIDriver`},
	{"volumes that are misspelt", objectText("PersistentVolume", "metadata: {name: disk}\nspec:\n  capasity: {}\n  capacity: {storage: much}\n  mountOptions: [ro, 5]\n  local: /mnt\n") + "---\n" +
		objectText("PersistentVolumeClaim", "metadata: {name: data}\nspec:\n  accessMode: [ReadWriteOnce]\n  volumeName: [a]\n"),
		`1 line 1 PersistentVolume="disk" object=false
  line 5: spec.capasity: unknown field; did you mean "capacity"?
  line 6: spec.capacity[storage]: "much" is not a valid quantity (such as "500m" or "64Mi"): quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
  line 7: spec.mountOptions[1]: is a number ("5"), but must be a string: put it in quotes if that is the value meant
  line 8: spec.local: is a string ("/mnt"), but must be an object
2 line 10 PersistentVolumeClaim="default/data" object=false
  line 14: spec.accessMode: unknown field; did you mean "accessModes"?
  line 15: spec.volumeName: is a list, but must be a string`},
	{"in a List", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: 1}}\n- {apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: k}, handler: k}\n",
		"1 line 4 ConfigMap=\"default/a\" object=false\n  line 4: data[a]: is a number (\"1\"), but must be a string: put it in quotes if that is the value meant\n" +
			"2 line 5 RuntimeClass=\"k\" object=true"},
	{"lists of one kind", "apiVersion: v1\nkind: ConfigMapList\nitems: [{metadata: {name: a}}]\n---\napiVersion: node.k8s.io/v1\nkind: RuntimeClassList\nitems: [{metadata: {name: k}, handler: k}]\n---\napiVersion: v1\nkind: RuntimeClassList\n---\napiVersion: v1\nkind: NodeList\n",
		`1 line 3 ConfigMap="default/a" object=true
2 line 7 RuntimeClass="k" object=true
3 line 9 name="" pod=false
  line 10: kind: kind RuntimeClassList (apiVersion v1) can't be used: ` + supported + `
4 line 12 name="" pod=false
  line 13: kind: kind NodeList (apiVersion v1) can't be used: ` + supported},
	{"the wrong version", "apiVersion: node.k8s.io/v1beta1\nkind: RuntimeClass\nmetadata: {name: k}\n",
		"1 line 1 RuntimeClass=\"k\" object=false\n  line 1: apiVersion: apiVersion is node.k8s.io/v1beta1, but must be node.k8s.io/v1 for a RuntimeClass"},
	{"unknown and repeated fields", objectText("ConfigMap", "metadata: {name: a}\ndatas: {}\ndata:\n  k: a\n  k: b\n"),
		"1 line 1 ConfigMap=\"default/a\" object=true\n  line 4: datas: unknown field; did you mean \"data\"?\n  line 7: data[k]: is given twice (first on line 6)"},
	{"no base64", objectText("ConfigMap", "metadata: {name: a}\nbinaryData: {x: hi!, why: 12, z: [1], ok: ''}\n"),
		`1 line 1 ConfigMap="default/a" object=false
  line 4: binaryData[x]: is not valid base64: illegal base64 data at input byte 2; plain text goes into data
  line 4: binaryData[why]: is a number ("12"), but must be a base64 string
  line 4: binaryData[z]: is a list, but must be a base64 string`},
	{"base64 over several lines", objectText("Secret", "metadata: {name: a}\ndata:\n  k: |\n    aGVs\n    bG8=\n"),
		`1 line 1 Secret="default/a" object=true`},
	{"cut short", objectText("ConfigMap", "metadata:\n  name: a\n  namespace: b\ndata: {"),
		"1 line 1 ConfigMap=\"b/a\" object=false\n  line 6: a value is expected here: is a bracket left open?"},
	{"cut short, without a namespace", objectText("RuntimeClass", "metadata: {name: k}\nhandler: {"),
		"1 line 1 RuntimeClass=\"k\" object=false\n  line 4: a value is expected here: is a bracket left open?"},
}

// Whatever is wrong with a Secret, no error may hold what it holds.
func TestErrorsHoldNothingOfASecret(t *testing.T) {
	const value = "hunter2"
	for _, rest := range []string{
		"data: {password: hunter2!}\n",
		"data: hunter2\n",
		"data: [hunter2]\n",
		"data: {password: [hunter2]}\n",
		"data: {password: {hunter2x: *hunter2}}\n",
		"data: {password: *hunter2}\n",
		"data: {password: !hunter2 x}\n",
		"data: {password: !!hunter2 x}\n",
		"data: {password: !!int hunter2}\n",
		"data: {password: !!binary hunter2}\n",
		"data: {password: ! hunter2, x: [}\n",
		"stringData: {password: !hunter2 }\n",
		"stringData: hunter2\n",
		"stringData: {<<: hunter2}\n",
		"stringData:\n  password: \"hunter2\n  x: 1\n",
		"stringData:\n  password: %hunter2\n",
		"stringData:\n  password: @hunter2\n",
		"stringData:\n  password: 'hunter2'hunter2\n",
		"stringData:\n  password: hunter2: hunter2\n",
		"type: {hunter2: 1}\n",
		"immutable: hunter2\n",
		"stringData: {password: !!float hunter2}\n",
		"metadata: {creationTimestamp: hunter2}\n",
		"\tstringData: {password: hunter2}\n",
	} {
		for _, text := range []string{
			objectText("Secret", rest),
			"apiVersion: v1\nkind: List\nitems:\n- " + strings.ReplaceAll(objectText("Secret", rest), "\n", "\n  "),
		} {
			wrong := 0
			for _, d := range Decode([]byte(text)) {
				for _, e := range d.Errors {
					wrong++
					if strings.Contains(strings.ReplaceAll(e.Error(), "hunter2x", ""), value) {
						t.Errorf("%q: the error is %q", rest, e.Error())
					}
				}
			}
			if wrong == 0 {
				t.Errorf("%q: nothing is wrong", rest)
			}
		}
	}
	for _, number := range []string{"90210", "9021.5", "0x160aa", "yes", "2026-01-02", ".nan"} {
		docs := Decode([]byte(objectText("Secret", "stringData: {password: "+number+"}\ndata: {password: "+number+"}\n")))
		if summary := summaries(docs); strings.Contains(summary, number) || len(docs[0].Errors) == 0 {
			t.Errorf("%s: %s", number, summary)
		}
	}
}

// What isn't an object may be a part of a Secret that came apart, or another file that got
// among the manifests.
func TestErrorsHoldNoTextOutsideOfObjects(t *testing.T) {
	for _, text := range []string{
		"PASSWORD=hunter2\n",
		objectText("Secret", "stringData:\n  a: |\n---\nhunter2\n"),
		"!hunter2 x\n",
		"apiVersion: v1\nkind: List\nitems: hunter2\n",
		"apiVersion: v1\nkind: SecretList\nitems: [hunter2, !hunter2 x]\n",
	} {
		if told := summaries(Decode([]byte(text))); !strings.Contains(told, "but must be") || strings.Contains(told, "hunter2") {
			t.Errorf("%q: %s", text, told)
		}
	}
}

func TestObjectSaysWhatTheTextSays(t *testing.T) {
	docs := Decode([]byte(objectText("Secret", "metadata: {name: s}\ndata: {a: aGk=, none: null}\nstringData: {b: \"y\"}\n")))
	s, ok := docs[0].Object.(*v1.Secret)
	if !ok || len(docs[0].Errors) > 0 {
		t.Fatal(summaries(docs))
	}
	if string(s.Data["a"]) != "hi" || s.StringData["b"] != "y" || s.Kind != "Secret" || s.APIVersion != "v1" || s.Namespace != "" {
		t.Errorf("got %+v", s)
	}
	if line := docs[0].LineOf("data[a]"); line != 4 {
		t.Errorf("data[a] is on line %d, want 4", line)
	}
}

func TestEveryKindHasAnExample(t *testing.T) {
	data, err := os.ReadFile("testdata/objects.yaml") // of which TestDecodeDirectory sees that it is good
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[object.Kind]bool{}
	for _, d := range Decode(data) {
		kinds[d.Kind] = true
	}
	for _, kind := range object.Kinds() {
		if !kinds[kind] || !strings.Contains(supported, string(kind)) {
			t.Errorf("no %s in testdata, or in what is told of kinds", kind)
		}
	}
}
