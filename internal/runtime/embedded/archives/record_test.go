package archives

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

func TestRecordFormats(t *testing.T) {
	want := imported{"a.tar": {Size: 7, Modified: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Images: []string{"example.org/a:1"}}}
	const data = `{"a.tar":{"size":7,"modified":"2026-01-02T03:04:05.000000006Z","images":["example.org/a:1"]}}`
	for what, tc := range map[string]struct {
		text string
		want imported
	}{
		"format 0": {data, want},
		"format 1": {`{"version":1,"sum":"sha256:679d9fe6843d6e1322d8e5fb3488307995daa5e89ff60acc487162a1b5231b13","data":` + data + `}`, want},
		"newer":    {`{"version":2,"sum":"","data":` + data + `}`, nil},
		"damaged":  {`{"version":1,"sum":"sha256:00","data":` + data + `}`, nil},
		"empty":    {"", nil},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := readRecord(path, logr.Discard()); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if err := want.write(path); err != nil {
				t.Fatal(err)
			}
			if got := readRecord(path, logr.Discard()); !reflect.DeepEqual(got, want) {
				t.Errorf("written anew it is %v, want %v", got, want)
			}
		})
	}
}
