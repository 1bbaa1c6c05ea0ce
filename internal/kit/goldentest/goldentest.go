// Package goldentest compares the results of tests with golden files.
package goldentest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare fails the test if got differs from the content of the file, and shows the differences. With update set, it
// first writes got to the file; review the file before committing it.
func Compare(t *testing.T, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got); if that is meant, run with -update:\n%s", file, diff)
	}
}
