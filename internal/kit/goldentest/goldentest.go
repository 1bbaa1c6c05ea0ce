// Package goldentest compares what a test got with a golden file.
package goldentest

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Compare fails the test if got isn't what the file says, and shows how they differ. With
// update the file is written anew instead: to be read before it is committed.
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
