package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/deckhand-node/deckhand/internal/config/flags"
)

// FuzzLoad: any flags (a line each), any file and any drop-in come to a Config, or to an
// error whose problems all say where they are.
func FuzzLoad(f *testing.F) {
	f.Add("--v=3", head+"maxPods: 3", "")
	f.Add("--node-ip=1.2.3.4,::1\n--kubeconfig=/k", "kind: x", head+"maxPods: 0")
	f.Add("--embedded_bridge=a/b\n--healthz-port=10255", head+"readOnlyPort: 10248\naddress: 127.0.0.1", head+"healthzPort: 10248")
	f.Add("--eviction-hard=memory.free<1Gi\n--feature-gates=A=true,AllAlpha=true", head+"evictionSoft: {memory.available: 1Gi}", head+"evictionSoftGracePeriod: {memory.available: soon, a: 1s}")
	f.Add("--tls-cert-file=a\n--reserved-memory=0:memory=1Gi\n--register-with-taints=a:b,c", head+"memoryManagerPolicy: Static\nimageGCHighThresholdPercent: 5", head+"{")
	f.Add("--vmodule=a=1\n--logging-format=json\n--system-cgroups=/a", head+"logging:\n\tformat: text", "{\"kind\": 1, \"maxPods\": \"\u2028\"}")
	f.Add("--hostname-override=_\n--root-dir=\n--cert-dir=x\n--cpu-manager-policy=static", head+"clusterDNS: *a\nmaxPods: \x00", "\ufeff"+strings.ReplaceAll(head+"a: 1\n  b: 2", "\n", "\r\n"))
	f.Add("--enforce-node-allocatable=kube-reserved\n--node-labels=a=b=c,k8s.io/x=y", head+strings.Repeat("a: 1\n", 300), head+"clusterDNS: ["+strings.Repeat("a,", 300)+"]")
	dir := f.TempDir()
	path, dropIn := filepath.Join(dir, "config"), filepath.Join(dir, "conf.d", "10.conf")
	if err := os.Mkdir(filepath.Dir(dropIn), 0o700); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, args, base, over string) {
		texts := map[string]string{path: base, dropIn: over}
		for name, text := range texts {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set := flags.New(DefaultRootDir)
		fs := pflag.NewFlagSet("fuzz", pflag.ContinueOnError)
		fs.Usage = func() {}
		set.AddTo(fs)
		if fs.Parse(append(strings.Split(args, "\n"), "--config", path, "--config-dir", filepath.Dir(dropIn))) != nil {
			return
		}
		if v := set.Values(); v.ConfigFile != path || v.ConfigDir != filepath.Dir(dropIn) {
			return // they came after the end of the flags
		}
		c, err := load(t.Context(), set, testHost())
		var invalid *InvalidError
		switch {
		case err == nil && (c.RootDir == "" || len(c.NodeIPs) == 0 || len(c.Embedded.PodCIDRs) == 0):
			t.Fatalf("an incomplete configuration: %+v", c)
		case err != nil && !errors.As(err, &invalid):
			t.Fatal(err)
		case err != nil:
			checkProblems(t, invalid.Problems, fs, texts, []string{path, dropIn})
		}
		_, notes, checkErr := Check(t.Context(), set)
		if set.Values().HostnameOverride != "" && (err == nil) != (checkErr == nil) {
			t.Fatalf("Check says %v, Load %v", checkErr, err)
		}
		if slices.ContainsFunc(notes, func(note string) bool { return !strings.Contains(note, ": ") }) {
			t.Fatalf("notes about nothing: %q", notes)
		}
	})
}

// lineBreak ends a line in YAML 1.1.
var lineBreak = regexp.MustCompile("\r\n|[\r\n\u0085\u2028\u2029]")

// checkProblems: each problem is in a line that exists, in a flag that exists or in a
// field; and they are in order.
func checkProblems(t *testing.T, problems []Problem, fs *pflag.FlagSet, texts map[string]string, files []string) {
	t.Helper()
	if len(problems) == 0 || len(problems) > maxProblems+1 {
		t.Fatalf("%d problems", len(problems))
	}
	for _, p := range problems {
		text, isFile := texts[p.File]
		switch {
		case p.Message == "" || strings.Contains(p.String(), "\n"):
			t.Fatalf("a problem that isn't one line: %+v", p)
		case isFile && p.Line > len(lineBreak.FindAllString(text, -1))+1, p.Line < 0, !isFile && p.Line != 0:
			t.Fatalf("a line that isn't there: %+v", p)
		case isFile && p.Flag == "":
		case p.File == "" && p.Flag != "":
			if name, ok := strings.CutPrefix(p.Flag, "--"); !ok || fs.Lookup(name) == nil {
				t.Fatalf("a flag that isn't there: %+v", p)
			}
		case p.File != "" || p.Field == "":
			t.Fatalf("a problem without a place: %+v", p)
		}
	}
	sorted := slices.Clone(problems)
	sortProblems(sorted, files)
	if !slices.Equal(sorted, problems) {
		t.Fatalf("they aren't in order: %+v", problems)
	}
}
