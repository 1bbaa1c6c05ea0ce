package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, in string
		failed   bool
		want     []string
	}{
		{"pass", `{"Action":"output","Package":"p","Test":"T","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p","Elapsed":1.5}`, false, []string{"ok   p 1.5s", "1 passed, 0 failed, 0 skipped"}},
		{"fail", `{"Action":"output","Package":"p","Test":"T","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}`, true, []string{"why\n", "FAIL p T", "0 passed, 1 failed, 0 skipped"}},
		{"skip", `{"Action":"output","Package":"p","Test":"T","Output":"no kernel\n"}
{"Action":"skip","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}`, true, []string{"no kernel", "SKIP p T", "1 skipped"}},
		{"build", `{"Action":"build-output","ImportPath":"p","Output":"syntax error\n"}
{"Action":"build-fail","ImportPath":"p"}`, true, []string{"syntax error", "FAIL to build p"}},
		{"nothing ran", ``, true, []string{"0 passed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			failed, err := report(strings.NewReader(c.in), &out)
			if err != nil || failed != c.failed {
				t.Errorf("failed = %v, err = %v, want failed = %v\n%s", failed, err, c.failed, out.String())
			}
			for _, w := range c.want {
				if !strings.Contains(out.String(), w) {
					t.Errorf("output lacks %q:\n%s", w, out.String())
				}
			}
		})
	}
}
