package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// All mistakes of a command line are reported at once, in words.
func TestCommandLineMistakes(t *testing.T) {
	for line, want := range map[string][]string{
		"agent --foo --cgroup-diver=systemd --docker-endpoint=x --max-pods=abc -zv=2 --max-open-files=99999999999999999999999 --register-node=yess --sync-frequency=5 --node-ip": {
			"unknown flag: --foo", "unknown flag: --cgroup-diver, did you mean --cgroup-driver?",
			"--docker-endpoint: the kubelet no longer has this flag: it went with dockershim: the container runtime is set with containerRuntimeEndpoint in the configuration file",
			`--max-pods: "abc" isn't an integer`, "unknown flag: -z in -zv=2", "--max-open-files: 99999999999999999999999 is out of range",
			`--register-node: "yess" isn't true or false`, `--sync-frequency: "5" isn't a duration such as "30s" or "1h30m"`,
			"--node-ip needs a value (see `deckhand agent --help`)",
		},
		"--max-podz=3":      {"unknown flag: --max-podz, did you mean --max-pods? (see `deckhand agent --help`)"},
		"agent --v=x":       {"--v: \"x\" isn't an integer (see `deckhand agent --help`)"},
		"agent --v=-1":      {"--v: -1 is negative: it must be 0 or more (see `deckhand agent --help`)"},
		"--network_plugin=": {"--network-plugin: the kubelet no longer has this flag: it went with dockershim: the container runtime configures the pod network (for the embedded containerd that is done already) (see `deckhand agent --help`)"},
		"pods --docker":     {"unknown flag: --docker (see `deckhand pods --help`)"},
		"pods -n":           {"--namespace needs a value (see `deckhand pods --help`)"},
		"logs":              {"POD is missing: deckhand logs [flags] POD [CONTAINER] (see `deckhand logs --help`)"},
		"logs a b c":        {`"c" is one argument too many: deckhand logs [flags] POD [CONTAINER] (see ` + "`deckhand logs --help`)"},
		"down now":          {`"now" is one argument too many: deckhand down [flags] (see ` + "`deckhand down --help`)"},
		"images rm":         {"IMAGE... is missing: deckhand images rm IMAGE... [flags] (see `deckhand images rm --help`)"},
	} {
		var out, errs bytes.Buffer
		deps := Deps{RootDir: t.TempDir(), AgentFlags: flags.New(t.TempDir())}
		code := Main(t.Context(), strings.Fields(line), "deckhand", strings.NewReader(""), &out, &errs, deps)
		if got := strings.TrimSuffix(errs.String(), "\n"); code != exitUsage || out.Len() > 0 || got != "error: "+strings.Join(want, "\nerror: ") {
			t.Errorf("%s: exit code %d, %q\ngot  %s\nwant error: %s", line, code, out.String(), got, strings.Join(want, "\nerror: "))
		}
	}
}

// However many manifests are broken, a person sees the first ones and a count; programs get all.
func TestManyBrokenManifests(t *testing.T) {
	agent := localtest.New()
	agent.Update(func(s *local.Snapshot) {
		for n := range 5000 {
			s.Problems = append(s.Problems, pod.Problem{Origin: fmt.Sprintf("/m/%d.yaml", n), Message: "line 1: it isn't a pod\nline 2: nor else"})
		}
	})
	root := localtest.Serve(t, agent)
	for line, most := range map[string]int{"pods": 34, "why": 13} {
		var out bytes.Buffer
		Main(t.Context(), strings.Fields(line), "deckhand", strings.NewReader(""), &out, &out, Deps{RootDir: root})
		text := out.String()
		if n := strings.Count(text, "\n"); n > most || !strings.Contains(text, "/m/9.yaml") || strings.Contains(text, "/m/10.yaml") ||
			!strings.Contains(text, "and 4990 more; `deckhand why -o json` has all 5000") {
			t.Errorf("%s prints %d lines:\n%.3000s", line, n, text)
		}
	}
	var out bytes.Buffer
	Main(t.Context(), []string{"why", "-o", "json"}, "deckhand", strings.NewReader(""), &out, &out, Deps{RootDir: root})
	if n := strings.Count(out.String(), "/m/"); n != 5000 {
		t.Errorf("why -o json has %d problems", n)
	}
}
