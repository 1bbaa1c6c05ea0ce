package usage

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestOtherPeoplesProjectsAreRead(t *testing.T) {
	etc := t.TempDir()
	for name, text := range map[string]string{
		"projects": "# ID:directory\n42:/var/log\n1048576:/data:with:colons\n\n 1048577 :/other\nnonsense\n99999999999:/too/large\n",
		"projid":   "# name:ID\nlogs:42\nbuilds:1048580\nbroken:\nalone\n:1048581\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := usedProjects(etc)
	if err != nil {
		t.Fatal(err)
	}
	want := map[uint32]bool{42: true, 1048576: true, 1048577: true, 1048580: true, 1048581: true}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWithoutAListOfProjects(t *testing.T) {
	got, err := usedProjects(filepath.Join(t.TempDir(), "none"))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}
