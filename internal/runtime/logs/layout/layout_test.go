package layout_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

func TestDir(t *testing.T) {
	const directory = "kube-system_web-node_0123abcd"
	if got := layout.PodDirectory("kube-system", "web-node", "0123abcd"); got != directory {
		t.Errorf("the directory is %s, want %s", got, directory)
	}
	namespace, name, uid, ok := layout.ParseDir(directory)
	if namespace != "kube-system" || name != "web-node" || uid != "0123abcd" || !ok {
		t.Errorf("%s is taken apart as %q, %q, %q, %v", directory, namespace, name, uid, ok)
	}
	for _, other := range []string{"", "lost+found", "a_b", "a_b_c_d"} {
		if _, _, _, ok := layout.ParseDir(other); ok {
			t.Errorf("%q is taken for a pod's directory", other)
		}
	}
}

func TestFile(t *testing.T) {
	if got := layout.File("main", 12); got != "main/12.log" {
		t.Errorf("the log is %s, want main/12.log", got)
	}
	for name, want := range map[string]struct {
		attempt     int
		rotated, ok bool
	}{
		"0.log":                    {0, false, true},
		"12.log":                   {12, false, true},
		"3.log.20260102-030405":    {3, true, true},
		"3.log.20260102-030405.gz": {3, true, true},
		"2147483646.log":           {2147483646, false, true},
		"2147483647.log":           {},
		"99999999999999999999.log": {},
		"-1.log":                   {},
		"00.log":                   {},
		"007.log":                  {},
		"+1.log":                   {},
		"log":                      {},
		".log":                     {},
		"x.log":                    {},
		"1.logs":                   {},
		"1.txt":                    {},
	} {
		attempt, rotated, ok := layout.ParseFile(name)
		if attempt != want.attempt || rotated != want.rotated || ok != want.ok {
			t.Errorf("%s: attempt %d, rotated %v, ok %v; want %+v", name, attempt, rotated, ok, want)
		}
	}
}
