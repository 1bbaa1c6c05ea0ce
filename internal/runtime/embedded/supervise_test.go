package embedded

import (
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
)

func TestPauses(t *testing.T) {
	var p pauses
	want := firstPause
	for range 12 {
		if got := p.advance(time.Second); got != want {
			t.Errorf("the pause is %v, not %v", got, want)
		}
		want = min(2*want, longestPause)
	}
	if got := p.advance(time.Second); got != longestPause {
		t.Errorf("the pause has grown to %v only", got)
	}
	if got := p.advance(healthyAfter); got != firstPause {
		t.Errorf("after a healthy time the pause is still %v", got)
	}
}

// The same input gives the same text, or containerd would be restarted in vain;
// and names can't break out of their strings.
func TestRender(t *testing.T) {
	l, err := rootdir.NewRuntime(`/var/lib/it's "quoted" <&>`)
	if err != nil {
		t.Fatal(err)
	}
	p := Programs{Runc: "/bin/runc", CNIDirs: []string{"/a b", "/c"}}
	text := render(Config{}.WithDefaults(), l, p, host{Snapshotter: "native", Platform: "linux/amd64"})
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, "= \n") {
			t.Errorf("%q has no value", line)
		}
	}
	for _, want := range []string{
		`root = "/var/lib/it's \"quoted\" \u003c\u0026\u003e/containerd/root"`,
		`restrict_oom_score_adj = true`,
		`disable_hugetlb_controller = true`,
		`oom_score = 0`,
		`snapshotter = "native"`,
		`bin_dirs = ["/a b", "/c", ]`,
		`sandbox = "deckhand.local/pause:1"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s isn't in\n%s", want, text)
		}
	}
	again := render(Config{}.WithDefaults(), l, p, host{Snapshotter: "native", Platform: "linux/amd64"})
	if string(again) != string(text) {
		t.Error("a second time it is different")
	}
	lower := render(Config{}.WithDefaults(), l, p, host{MayLowerOOMScore: true})
	if !strings.Contains(string(lower), "restrict_oom_score_adj = false") || !strings.Contains(string(lower), "oom_score = -999") {
		t.Errorf("with CAP_SYS_RESOURCE it is\n%s", lower)
	}
	pages := render(Config{}.WithDefaults(), l, p, host{HugePages: true})
	if !strings.Contains(string(pages), "disable_hugetlb_controller = false") {
		t.Errorf("where huge pages can be bounded it is\n%s", pages)
	}
	traced := render(Config{Collector: "collector:4317"}.WithDefaults(), l, p, host{})
	if !strings.Contains(string(traced), `"collector:4317"`) || strings.Contains(string(traced), "otlp") || !strings.Contains(string(text), "tracing.processor.v1.otlp") {
		t.Errorf("where containerd traces it is\n%s", traced)
	}
	slices := render(Config{SystemdCgroup: true}.WithDefaults(), l, p, host{})
	if !strings.Contains(string(slices), "SystemdCgroup = true") || !strings.Contains(string(text), "SystemdCgroup = false") {
		t.Errorf("where systemd makes cgroups it is\n%s", slices)
	}
}

// TestCollector: containerd can send traces to a host and port only.
func TestCollector(t *testing.T) {
	for endpoint, want := range map[string]string{
		"localhost:4317": "localhost:4317", "[::1]:4317": "[::1]:4317", "dns:///collector:4317": "collector:4317",
		"dns://192.0.2.1/collector:4317": "", "unix:///run/collector": "", "unix-abstract:collector": "",
	} {
		if got := collector(endpoint); got != want {
			t.Errorf("%s: %q, want %q", endpoint, got, want)
		}
	}
}
