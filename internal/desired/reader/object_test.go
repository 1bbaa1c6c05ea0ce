package reader_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

func readOne(t *testing.T, text string) (*reader.Reader, reader.Doc) {
	t.Helper()
	r := sourcetest.NewReader(pod.SourceFile)
	docs, err := r.Read([]byte(text))
	if err != nil || len(docs) != 1 {
		t.Fatalf("documents %+v, error %v", docs, err)
	}
	return r, docs[0]
}

func TestObject(t *testing.T) {
	r, d := readOne(t, sourcetest.Secret("token", "hunter2"))
	if d.String() != "Secret default/token" || len(d.Errors) > 0 {
		t.Fatalf("document %s, errors %q", d, d.Errors)
	}
	seen := time.Unix(1, 0)
	o, wrong := r.CompleteObject(d, seen)
	s, ok := o.(*v1.Secret)
	if !ok || len(wrong) > 0 {
		t.Fatalf("%T, %q", o, wrong)
	}
	if string(s.Data["key"]) != "hunter2" || s.StringData != nil || s.Type != v1.SecretTypeOpaque || s.UID == "" || !s.CreationTimestamp.Time.Equal(seen) {
		t.Error("the Secret isn't complete")
	}
	back, err := r.RestoreObject(d.Kind, d.Canonical)
	if err != nil || back.Hash != d.Hash || back.ID != d.ID {
		t.Errorf("restored %v (%v), want %v", back, err, d)
	}
	again, wrong := r.CompleteObject(back, seen)
	if len(wrong) > 0 || again.GetUID() != s.UID || again.GetResourceVersion() != s.ResourceVersion {
		t.Errorf("made again it is another object: %q", wrong)
	}
}

func TestObjectsThatCannotBeRestored(t *testing.T) {
	r := sourcetest.NewReader(pod.SourceFile)
	for text, kind := range map[string]object.Kind{"{": object.Secret, `{"data":{"a":12345}}`: object.Secret, "{}": "Ingress"} {
		if _, err := r.RestoreObject(kind, []byte(text)); err == nil || strings.Contains(err.Error(), "12345") {
			t.Errorf("%s %s: error %v", kind, text, err)
		}
	}
}

func TestEveryErrorOfAnObjectIsReported(t *testing.T) {
	r, d := readOne(t, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: A\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: x\n  a/b: hunter2\n")
	_, wrong := r.CompleteObject(d, time.Now())
	want := []string{"line 1: data[a/b]: ", "line 1: data[tls.key]: Required", "line 4: metadata.name: Invalid"}
	if len(wrong) != len(want) || !slices.EqualFunc(wrong, want, strings.HasPrefix) || strings.Contains(strings.Join(wrong, ""), "hunter2") {
		t.Errorf("errors %q, want %q", wrong, want)
	}
	_, d = readOne(t, "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandlr: x\n")
	if all := strings.Join(d.Errors, "\n"); !strings.Contains(all, `line 4: handlr: unknown field; did you mean "handler"?`) || !strings.Contains(all, "handler: Required") || d.String() != "RuntimeClass kata" {
		t.Errorf("errors %q of %s", d.Errors, d)
	}
}

func TestEveryErrorOfVolumesIsReported(t *testing.T) {
	for text, want := range map[string][]string{
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec:\n  capacity:\n    storage: 0\n  accessModes: [ReadWriteOnce, Always]\n  claimRef: {name: data}\n  local:\n    path: disk\n": {
			"line 4: spec.nodeAffinity.required: Required value: must say on which node a local volume is, such as by the label kubernetes.io/hostname",
			"line 6: spec.capacity[storage]: Invalid value: \"0\": must be greater than zero",
			"line 7: spec.accessModes[1]: Unsupported value: \"Always\": supported values: ",
			"line 8: spec.claimRef.namespace: Required value: ",
			"line 10: spec.local.path: Invalid value: \"disk\": must be an absolute path",
		},
		"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec:\n  capacity: {storage: 1Gi}\n  accessModes: [ReadWriteOnce]\n  hostPath: {path: /a}\n  nfs: {path: /b}\n": {
			"line 8: spec.nfs: Forbidden: may not specify more than 1 volume type",
			"line 8: spec.nfs.server: Required value: must be the host name or address of the NFS server",
		},
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec:\n  storageClassName: Fast\n  resources:\n    requests:\n      memory: 1Gi\n": {
			"line 4: spec.accessModes: Required value: at least 1 access mode is required",
			"line 5: spec.storageClassName: Invalid value: \"Fast\": ",
			"line 7: spec.resources.requests[storage]: Required value: must be the size of the volume, such as \"1Gi\"",
		},
	} {
		r, d := readOne(t, text)
		_, wrong := r.CompleteObject(d, time.Now())
		if len(wrong) != len(want) || !slices.EqualFunc(wrong, want, strings.HasPrefix) {
			t.Errorf("%s\nerrors\n%s\nwant\n%s", text, strings.Join(wrong, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestADriverThatWantsAttachIsRefused: what an API server adds to a CSIDriver in which the field isn't given would be refused, too.
func TestADriverThatWantsAttachIsRefused(t *testing.T) {
	const text = "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata:\n  name: csi.example.com\nspec:\n  podInfoOnMount: true\n"
	r, d := readOne(t, text+"  attachRequired: true\n  tokenRequests:\n  - {audience: a}\n  - {audience: a, expirationSeconds: 5}\n")
	_, wrong := r.CompleteObject(d, time.Now())
	want := []string{
		"line 7: spec.attachRequired: Invalid value: true: there is no controller here that attaches volumes, so pods would wait for ever: set attachRequired: false",
		"line 10: spec.tokenRequests[1].audience: Duplicate value: \"a\": must differ from spec.tokenRequests[0].audience",
		"line 10: spec.tokenRequests[1].expirationSeconds: Invalid value: 5: must be between 600 and 4294967296, inclusive",
	}
	if !slices.Equal(wrong, want) || d.String() != "CSIDriver csi.example.com" {
		t.Errorf("errors of %s\n%s\nwant\n%s", d, strings.Join(wrong, "\n"), strings.Join(want, "\n"))
	}
	for _, given := range []string{"", "  attachRequired: false\n"} {
		r, d := readOne(t, text+given)
		o, wrong := r.CompleteObject(d, time.Now())
		driver, ok := o.(*storagev1.CSIDriver)
		if len(wrong) > 0 || !ok || *driver.Spec.AttachRequired || !*driver.Spec.PodInfoOnMount || driver.Namespace != "" {
			t.Errorf("with %q: %+v, errors %q", given, o, wrong)
		}
	}
}

func TestFrozen(t *testing.T) {
	text := sourcetest.Immutable(sourcetest.ConfigMap("c", "a"))
	r, d := readOne(t, text)
	old, wrong := r.CompleteObject(d, time.Now())
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	if wrong := d.Frozen(old, old); len(wrong) > 0 {
		t.Errorf("the same is refused: %q", wrong)
	}
	_, d = readOne(t, sourcetest.Immutable(sourcetest.ConfigMap("c", "b")))
	next, _ := r.CompleteObject(d, time.Now())
	if wrong := d.Frozen(old, next); len(wrong) != 1 || !strings.HasPrefix(wrong[0], "line 4: data: ") || !strings.Contains(wrong[0], "immutable") {
		t.Errorf("errors %q", wrong)
	}
}
