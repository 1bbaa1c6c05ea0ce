package binder_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/volume"
)

func (n *node) record() string { return filepath.Join(n.dir, "bindings.json") }

func TestTheRecordIsReadable(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pvc("data", "1Gi", "volumeName: b"))
	n.has(t, user(t, "data"), "b")
	n.has(t, podOf(t, "web", "uid-1", scratch), "a")
	if err := n.Forget(t.Context(), "uid-1"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(n.record())
	want := `"data":[{"volume":"a","claim":{"namespace":"default","name":"web-scratch","pod":"uid-1"},"released":true},{"volume":"b","claim":{"namespace":"default","name":"data"},"users":["uid-user"]}]}`
	if err != nil || !strings.HasPrefix(string(text), `{"version":1,`) || !strings.HasSuffix(string(text), want) {
		t.Errorf("%v: %s\nwant %s", err, text, want)
	}
	if st, err := os.Stat(n.record()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(n.dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}

// TestARecordThatCannotBeUsedKeepsVolumesFromOthers: no claim gets a volume that may be another's, and
// those that manifests say all of go on.
func TestARecordThatCannotBeUsedKeepsVolumesFromOthers(t *testing.T) {
	seal := func(version int, v any) []byte {
		text, err := checkpoint.Seal(version, v)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	entry := func(volume, claim string) map[string]any {
		return map[string]any{"volume": volume, "claim": map[string]string{"namespace": "default", "name": claim}}
	}
	for name, test := range map[string]struct {
		damage func(t *testing.T, path string)
		told   string
	}{
		"cut short": {func(t *testing.T, path string) { put(t, path, read(t, path)[:20]) }, "restore the file"},
		"empty":     {func(t *testing.T, path string) { put(t, path, nil) }, "restore the file"},
		"changed": {func(t *testing.T, path string) {
			put(t, path, bytes.Replace(read(t, path), []byte(`"volume":"a"`), []byte(`"volume":"b"`), 1))
		}, "its checksum doesn't match"},
		"newer":                {func(t *testing.T, path string) { put(t, path, seal(2, nil)) }, "newer version of deckhand (format 2, this one knows up to 1); run that version"},
		"a volume twice":       {func(t *testing.T, path string) { put(t, path, seal(1, []any{entry("a", "x"), entry("a", "y")})) }, "PersistentVolume a twice"},
		"a claim twice":        {func(t *testing.T, path string) { put(t, path, seal(1, []any{entry("a", "x"), entry("b", "x")})) }, "PersistentVolumeClaim default/x twice"},
		"an entry for nothing": {func(t *testing.T, path string) { put(t, path, seal(1, []any{entry("a", "")})) }, "an entry without a name"},
		"not readable": {func(t *testing.T, path string) {
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
		}, "is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t)
			n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pv("own", "1Gi", "claimRef: {namespace: default, name: own}", "persistentVolumeReclaimPolicy: Delete")+
				pv("pods", "1Gi", "claimRef: {namespace: default, name: web-scratch}")+
				pvc("data", "1Gi")+pvc("named", "1Gi", "volumeName: a")+pvc("own", "1Gi", "volumeName: own"))
			n.has(t, user(t, "data"), "a")
			test.damage(t, n.record())
			n.Binder = n.new()
			err := n.Restore()
			if err == nil || !strings.Contains(err.Error(), test.told) || !strings.Contains(err.Error(), n.record()) {
				t.Fatalf("restored with %v, want %s", err, test.told)
			}
			for _, claim := range []string{"data", "named"} {
				n.waits(t, user(t, claim), claim, "its PersistentVolume can't be determined", test.told)
			}
			ephemeral := strings.Replace(scratch, "spec: {", "spec: {volumeName: pods, ", 1)
			n.waits(t, podOf(t, "web", "uid-1", ephemeral), "web-scratch", test.told)
			for range 2 {
				n.has(t, user(t, "own"), "own")
			}
			if len(n.events) > 0 {
				t.Errorf("told each time: %q", n.events)
			}
			n.tidy(t)
			if err := n.Forget(t.Context(), "uid-1"); err != nil {
				t.Error(err)
			}

			n.Binder = n.new() // nothing changes by itself
			if again := n.Restore(); again == nil || again.Error() != err.Error() {
				t.Errorf("restored again with %v", again)
			}
			n.define(t, pv("a", "1Gi", "claimRef: {namespace: default, name: data}")+pvc("data", "1Gi", "volumeName: a"))
			n.has(t, user(t, "data"), "a")
			if err := os.RemoveAll(n.record()); err != nil { // as advised
				t.Fatal(err)
			}
			n.restart(t)
			n.has(t, user(t, "data"), "a")
			n.has(t, podOf(t, "web", "uid-1", ephemeral), "pods")
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestNothingIsBoundBeforeTheRecordIsRead(t *testing.T) {
	n := newNode(t.TempDir())
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi"))
	n.waits(t, user(t, "data"), "data", "hasn't been read yet")
}

// TestWhatIsNotOnDiskIsNotBound: a binding that can't be kept isn't used, nor one that can't be
// let go forgotten.
func TestWhatIsNotOnDiskIsNotBound(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pv("b", "1Gi")+pv("c", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	ephemeral := podOf(t, "web", "uid-1", scratch)
	n.has(t, ephemeral, "a")
	repair := n.breakDisk(t)
	_, err := n.bind(t, user(t, "data"))
	var awaits *volume.AwaitsError
	if err == nil || errors.As(err, &awaits) || !strings.Contains(err.Error(), "PersistentVolumeClaim default/data fits PersistentVolume b, but isn't bound to it") {
		t.Errorf("error %v", err)
	}
	if err := n.Forget(t.Context(), "uid-1"); err == nil {
		t.Error("forgotten")
	}
	n.has(t, ephemeral, "a") // for which nothing needs to be written
	repair()
	n.has(t, user(t, "data"), "b")
	n.gone(t, user(t, "data"))
	repair = n.breakDisk(t)
	if _, err := n.bind(t, user(t, "data")); err == nil || !strings.Contains(err.Error(), "PersistentVolumeClaim default/data is bound to PersistentVolume b, but isn't given to the pod") {
		t.Errorf("given to a pod that nobody would know of: %v", err)
	}
	repair()
	n.gone(t, ephemeral)
	repair = n.breakDisk(t)
	n.remove(volumeKey("a"))
	if err := n.Tidy(t.Context()); err == nil {
		t.Error("let go")
	}
	repair()
	n.restart(t)
	n.tidy(t)
	n.define(t, pv("a", "1Gi"))
	n.has(t, user(t, "other"), "a")
}

// TestAPodIsForgottenWhileVolumesAreUnknown: what it used is let go of later.
func TestAPodIsForgottenWhileVolumesAreUnknown(t *testing.T) {
	n := start(t)
	n.define(t, pv("a", "1Gi")+pvc("data", "1Gi")+pvc("other", "1Gi"))
	n.has(t, user(t, "data"), "a")
	n.remove(volumeKey("a"), claimKey("data"))
	n.sync(false)
	n.gone(t, user(t, "data"))
	n.sync(true)
	n.define(t, pv("a", "1Gi"))
	n.waits(t, user(t, "other"), "other", "a was released")
	n.remove(volumeKey("a"))
	n.tidy(t)
	n.define(t, pv("a", "1Gi"))
	n.has(t, user(t, "other"), "a")
}

// breakDisk makes writing fail until it is repaired.
func (n *node) breakDisk(t errorer) (repair func()) {
	t.Helper()
	aside := n.dir + ".aside"
	if err := errors.Join(os.Rename(n.dir, aside), os.WriteFile(n.dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(os.Remove(n.dir), os.Rename(aside, n.dir)); err != nil {
			t.Fatal(err)
		}
	}
}
