package docs

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the repository.
const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func documents(t *testing.T) []string {
	t.Helper()
	list, err := Documents(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 20 {
		t.Fatalf("there are %d documents only: %q", len(list), list)
	}
	return list
}

// Elsewhere names the blocks that aren't run, each with the reason.
var Elsewhere = map[string]string{
	"README.md: make run     # as root: builds all, runs the pods of examples/, and prints their URLs":                 "it takes the network and a quarter of an hour; the test itself builds the package by what make dist runs",
	"docs/tasks/airgap.md: deckhand images pull registry.example.com/shop:1":                                           "it is for another machine, with a network",
	"docs/tasks/airgap.md: docker pull registry.example.com/shop:1":                                                    "it is for another machine, with a network and Docker",
	"docs/tasks/csi.md: deckhand volumes forget 8e1f7a0c-4f0e-4a68-9f7b-6f3f5b2c9f10/data":                             "it needs a driver that was uninstalled; TestCSIForget in test/e2e runs it",
	"docs/tasks/from-the-kubelet.md: apt install ./deckhand_*.deb":                                                     "it is for a node that kubeadm made; test/takeover and test/systemd have the kubelet and deckhand take each other's place",
	"docs/tasks/from-the-kubelet.md: systemctl stop kubelet":                                                           "the same",
	"test/conformance/README.md: make conformance # below CONFORMANCE_DIR, /var/lib/deckhand-conformance":              "it takes the network and an hour",
	"test/conformance/README.md: LAB=DIR FOCUS='Summary API|Device Plugin|POD Resources API' test/conformance/node.sh": "the same",
	"test/conformance/README.md: LAB=DIR test/conformance/csi.sh":                                                      "the same",
	"docs/tasks/from-the-kubelet.md: systemctl stop kubelet # and put it back":                                         "the same",
}

// TestBlocks: whatever looks like a command is in a block that is run, or is marked and listed.
func TestBlocks(t *testing.T) {
	listed := map[string]bool{}
	for _, file := range documents(t) {
		blocks, err := Blocks(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			switch {
			case b.Commands() && b.Mark == elsewhere:
				if Elsewhere[b.Key()] == "" {
					t.Errorf("%s isn't run, and Elsewhere has no reason for %q", &b, b.Key())
				}
				listed[b.Key()] = true
			case b.Mark != "" && !b.Screen():
				t.Errorf("%s is marked %q, which means nothing", &b, b.Mark)
			case !slices.Contains([]string{"sh", "console", "yaml", "text"}, b.Language):
				t.Errorf("%s is in the language %q: it is one of sh, console, yaml and text", &b, b.Language)
			}
		}
	}
	for key := range Elsewhere {
		if !listed[key] {
			t.Errorf("Elsewhere lists %q, and there is no such block with that mark", key)
		}
	}
}

var indented = regexp.MustCompile(`(?m)^(?:    |\t)(?:# )?(?:deckhand|apt|apt-get|dpkg|systemctl|make|kubectl|kubeadm|curl|git|cp|tar|ln|rm) .*`)

// TestCommandsAreFenced: a command in an indented block would be run by nobody.
func TestCommandsAreFenced(t *testing.T) {
	for _, file := range documents(t) {
		inFence := false
		for i, line := range strings.Split(read(t, file), "\n") {
			if strings.HasPrefix(line, "```") {
				inFence = !inFence
			}
			if !inFence && indented.MatchString(line) {
				t.Errorf("%s:%d: %q belongs into a fenced block", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+?)\s*$`)
	fenced  = regexp.MustCompile("(?ms)^```.*?^```")
	inline  = regexp.MustCompile("`[^`\n]*`")
)

// anchors are the names that GitHub gives to a document's headings.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		var name strings.Builder
		for _, r := range strings.ToLower(strings.NewReplacer("`", "", "*", "").Replace(m[1])) {
			switch {
			case r == ' ':
				name.WriteByte('-')
			case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r > 127:
				name.WriteRune(r)
			}
		}
		found[name.String()] = true
	}
	return found
}

// TestLinks: a link within the repository leads to a file that is there, and to a heading in it.
func TestLinks(t *testing.T) {
	links := 0
	linked := map[string]bool{"README.md": true}
	for _, file := range documents(t) {
		text := inline.ReplaceAllString(fenced.ReplaceAllString(read(t, file), ""), "")
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			links++
			target, err := url.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			if target.Scheme != "" {
				if target.Scheme != "https" {
					t.Errorf("%s links to %s, which isn't https", file, m[1])
				}
				continue
			}
			to := file
			if target.Path != "" {
				to = path.Join(path.Dir(file), target.Path)
			}
			info, err := os.Stat(filepath.Join(root, to))
			if err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
				continue
			}
			if to != file {
				linked[to] = true
			}
			if target.Fragment != "" && (info.IsDir() || !anchors(read(t, to))[target.Fragment]) {
				t.Errorf("%s links to %s, and there is no such heading", file, m[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("found %d links only", links)
	}
	for _, file := range documents(t) {
		if !linked[file] && !strings.HasPrefix(file, ".github/") {
			t.Errorf("nothing links to %s", file)
		}
	}
}
