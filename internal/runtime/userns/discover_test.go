package userns_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

func known() func(string) (bool, error) {
	return func(name string) (bool, error) { return name == "kubelet", nil }
}

// getsubids puts a command of that name into PATH, and nothing else.
func getsubids(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "getsubids"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
}

func TestDefaultIDs(t *testing.T) {
	for _, tc := range []struct {
		name           string
		maxPods        int32
		perPod, length uint32
	}{
		{"the default", 110, 0, 110 * block},
		{"longer", 10, 3 * block, 30 * block},
		{"all there are", 100_000, block, 0xffff0000 - block},
	} {
		f := userns.Finder{MaxPods: tc.maxPods, PerPod: tc.perPod, Exists: func(string) (bool, error) { return false, nil }}
		if r, err := f.Find(context.Background()); err != nil || r != (userns.Range{HostID: block, Length: tc.length}) {
			t.Errorf("%s: %+v, %v", tc.name, r, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	f := userns.Finder{MaxPods: 1, Exists: known()}
	if r, err := f.Find(context.Background()); err != nil || r.Length != block {
		t.Errorf("without getsubids: %+v, %v", r, err)
	}
}

func TestSubordinateIDs(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		perPod       uint32
		want         string
	}{
		{"as documented", `echo "0: kubelet 131072 7208960"`, 0, "131072-7340031"},
		{"two lines", `echo "0: kubelet 65536 7208960"; echo "1: kubelet 655360000 65536"`, 0, "more than one range"},
		{"other groups", `if [ "$1" = -g ]; then echo "0: kubelet 131072 7208960"; else echo "0: kubelet 65536 7208960"; fi`, 0, "have to be the same"},
		{"the host's", `echo "0: kubelet 0 7208960"`, 0, "the host's own"},
		{"unaligned", `echo "0: kubelet 100000 7208960"`, 0, "multiples of 65536"},
		{"odd count", `echo "0: kubelet 65536 7208961"`, 0, "multiples of 65536"},
		{"too few", `echo "0: kubelet 65536 7143424"`, 0, "too few for 110 pods"},
		{"too few for longer ones", `echo "0: kubelet 65536 7208960"`, 2 * block, "too few for 110 pods with 131072 each"},
		{"somebody else's", `echo "0: nobody 65536 7208960"`, 0, "can't be understood"},
		{"nothing", `true`, 0, "can't be understood"},
		{"none", `echo "Error fetching ranges" >&2; exit 1`, 0, "Error fetching ranges"},
		{"odd length", `true`, 5, "idsPerPod is 5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			getsubids(t, tc.script)
			r, err := userns.Finder{MaxPods: 110, PerPod: tc.perPod, Exists: known()}.Find(context.Background())
			got := r.String()
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("%s, not %s", got, tc.want)
			}
		})
	}
}

func TestUserCantBeLookedUp(t *testing.T) {
	f := userns.Finder{Exists: func(string) (bool, error) { return false, errors.New("no passwd") }}
	if _, err := f.Find(context.Background()); err == nil {
		t.Error("no error: somebody else's IDs may be given to pods")
	}
	if ok, err := (userns.Finder{MaxPods: 1}).Find(context.Background()); err != nil || ok.HostID%block != 0 {
		t.Errorf("this host: %v, %v", ok, err)
	}
}
