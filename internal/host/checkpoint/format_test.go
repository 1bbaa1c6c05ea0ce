package checkpoint_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// What an earlier version wrote is read whole. The files of testdata have every field that a
// format's records had, and are never changed: who changes a field's name or meaning makes the
// next format, and reads these.
func TestOlderFormats(t *testing.T) {
	for _, format := range []string{"format1"} {
		for kind, v := range map[string]any{"kept": &pod.Checkpoint{}, "allocation": &pod.Allocation{}} {
			t.Run(format+"/"+kind, func(t *testing.T) {
				text, err := os.ReadFile(filepath.Join("testdata", format, kind+".json"))
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				if err := os.MkdirAll(filepath.Join(dir, string(uid)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, string(uid), kind+".json"), text, 0o600); err != nil {
					t.Fatal(err)
				}
				if found, err := checkpoint.New(dir).Load(uid, kind, v); err != nil || !found {
					t.Fatalf("found %v, %v", found, err)
				}
				for _, f := range reflect.VisibleFields(reflect.TypeOf(v).Elem()) {
					if reflect.ValueOf(v).Elem().FieldByIndex(f.Index).IsZero() {
						t.Errorf("nothing became of %s", f.Name)
					}
				}
				if diff := cmp.Diff(data(t, text), data(t, encode(t, v))); diff != "" {
					t.Errorf("(-on disk +read):\n%s", diff)
				}
			})
		}
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"data": v})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// data is what a record says.
func data(t *testing.T, text []byte) any {
	t.Helper()
	var content struct {
		Data any `json:"data"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		t.Fatal(err)
	}
	return content.Data
}
