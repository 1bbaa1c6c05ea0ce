package flags

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

var kubeletHelp = flag.String("kubelet-help", "", "make testdata/kubelet-1.36-flags.txt anew from this `file` with the output of kubelet --help")

const kubeletGolden = "testdata/kubelet-1.36-flags.txt"

const kubeletHeader = `# The flags of the kubelet 1.36.3: name, shorthand, type, default, "deprecated"; "-" for none.
# Facts taken from the output of its --help:
#	kubelet --help >help.txt && go test ./internal/config/flags -run TestKubeletsFlags -kubelet-help help.txt
# A default that is its type's zero isn't in that output, and so neither here.
`

// fact is what the kubelet's help says about a flag, but for its words.
type fact struct{ name, short, typ, def, deprecated string }

func (f fact) String() string {
	return strings.Join([]string{f.name, f.short, f.typ, f.def, f.deprecated}, "\t")
}

var (
	flagLine    = regexp.MustCompile(`^ +(?:-(\w), )?--([a-z0-9-]+)(?: ([^ ]+))?(?:  +(.*))?$`)
	continued   = regexp.MustCompile(` *\n {16}`)
	defaultText = regexp.MustCompile(`\(default (.*?)\)(?: \(DEPRECATED|$)`)
)

// factsOf reads the list of flags as pflag prints it.
func factsOf(help string) []fact {
	var facts []fact
	for line := range strings.Lines(continued.ReplaceAllString(help, " ")) {
		m := flagLine.FindStringSubmatch(strings.TrimRight(line, " \n"))
		if m == nil {
			continue
		}
		f := fact{name: m[2], short: m[1], typ: m[3], deprecated: "-"}
		// A switch shows no type, or a word of its text.
		if f.typ == "" || f.typ == "RuntimeDefault" {
			f.typ = "bool"
		}
		if d := defaultText.FindStringSubmatch(m[4]); d != nil {
			f.def = strings.Trim(d[1], `"`)
		}
		if strings.Contains(m[4], "(DEPRECATED: ") {
			f.deprecated = "deprecated"
		}
		for _, text := range []*string{&f.short, &f.def} {
			if *text == "" {
				*text = "-"
			}
		}
		facts = append(facts, f)
	}
	return facts
}

// ourFacts are the same of the flags of this package.
func ourFacts(s *Set) map[string]fact {
	bare := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.flags.VisitAll(func(f *pflag.Flag) {
		c := *f
		c.Usage = ""
		bare.AddFlag(&c)
	})
	facts := map[string]fact{}
	for _, f := range factsOf(bare.FlagUsages()) {
		if s.rows[f.name].deprecated {
			f.deprecated = "deprecated"
		}
		facts[f.name] = f
	}
	return facts
}

// openByDefault is why flags have the configuration file's defaults.
const openByDefault = "with the kubelet's, an agent without a file lets everybody on the network run commands in containers"

// departures are where a flag isn't as the kubelet's, or is missing, and why.
var departures = map[string]struct{ got, why string }{
	"container-runtime-endpoint":   {"container-runtime-endpoint\t-\tstring\t-\tdeprecated", "unset means the embedded runtime, not a containerd of the host's"},
	"anonymous-auth":               {"anonymous-auth\t-\tbool\t-\tdeprecated", openByDefault},
	"authentication-token-webhook": {"authentication-token-webhook\t-\tbool\ttrue\tdeprecated", openByDefault},
	"authorization-mode":           {"authorization-mode\t-\tstring\tWebhook\tdeprecated", openByDefault},
	"eviction-hard": {"eviction-hard\t-\tmapStringString\timagefs.available<15%,imagefs.inodesFree<5%,memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%\tdeprecated",
		"the default that holds is shown"},
	"read-only-port": {"read-only-port\t-\tint32\t-\tdeprecated", openByDefault},
	"help":           {"", "commands have a --help of their own"},
}

// own are the flags the kubelet doesn't have.
var own = []string{"await-device-plugins", "container-log-links-dir", "embedded-bin-dir", "embedded-bridge", "hold-pods-for", "journal-bytes", "offline-secrets-key", "watch-config"}

// TestKubeletsFlags: a command line written for the kubelet is read as the kubelet reads it.
func TestKubeletsFlags(t *testing.T) {
	if *kubeletHelp != "" {
		help, err := os.ReadFile(*kubeletHelp)
		if err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(string(help), "\nFlags:\n")
		text := kubeletHeader
		for _, f := range factsOf(list) {
			text += f.String() + "\n"
		}
		if err := os.WriteFile(kubeletGolden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(kubeletGolden)
	if err != nil {
		t.Fatal(err)
	}
	ours := ourFacts(New("/var/lib/kubelet"))
	var kubelets []string
	for line := range strings.Lines(string(golden)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, _, _ := strings.Cut(line, "\t")
		kubelets = append(kubelets, name)
		got := ""
		if f, ok := ours[name]; ok {
			got = f.String()
		}
		want := line
		if d, ok := departures[name]; ok {
			want = d.got
		}
		if got != want {
			t.Errorf("--%s:\ngot  %q\nwant %q", name, got, want)
		}
	}
	if len(kubelets) != 149 {
		t.Errorf("the golden file has %d flags, want 149", len(kubelets))
	}
	for name := range ours {
		if !slices.Contains(kubelets, name) && !slices.Contains(own, name) {
			t.Errorf("--%s is neither the kubelet's nor in the list of our own", name)
		}
	}
}

// TestRootDirDecidesDefaults: under its own name deckhand keeps its state elsewhere, and
// certificates always below the root directory that it is given.
func TestRootDirDecidesDefaults(t *testing.T) {
	for _, c := range []struct {
		root string
		args []string
		want string
	}{
		{"/var/lib/deckhand", nil, "/var/lib/deckhand /var/lib/deckhand/pki"},
		{"/var/lib/deckhand", []string{"--root-dir=/a"}, "/a /a/pki"},
		{"/var/lib/deckhand", []string{"--root-dir=/a", "--cert-dir=/b"}, "/a /b"},
		{"/var/lib/kubelet", nil, "/var/lib/kubelet /var/lib/kubelet/pki"},
		{"/var/lib/kubelet", []string{"--root-dir=/a"}, "/a /var/lib/kubelet/pki"},
	} {
		s := New(c.root)
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		s.AddTo(fs)
		if err := fs.Parse(c.args); err != nil {
			t.Fatal(err)
		}
		v := s.Values()
		if got := v.RootDir + " " + v.CertDir; got != c.want {
			t.Errorf("default %s, %q: %s, want %s", c.root, c.args, got, c.want)
		}
	}
}
