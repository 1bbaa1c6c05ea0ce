package packaging

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/docs"
	"github.com/deckhand-node/deckhand/test/e2e/node"
	"github.com/deckhand-node/deckhand/test/registry"
)

// quickstart installs deckhand in its first block, and bare are the documents that begin on a machine without it. The
// others go on from that block.
const quickstart = "docs/quickstart.md"

var bare = []string{quickstart, "README.md", "docs/tasks/up.md", "packaging/README.md"}

// TestDocuments does what the documents say, each on a machine of its own.
func TestDocuments(t *testing.T) {
	list, err := docs.Documents(checkout("."))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, file := range list {
		blocks, err := docs.Blocks(checkout("."), file)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks {
			if b.Screen() {
				t.Run(file+" screen", func(t *testing.T) {
					t.Parallel()
					m := newMachine(t)
					m.furnish("")
					m.followScripts(t, quickstart, 2)
					m.followScripts(t, "docs/tasks/debug.md", 1)
					m.follow(t, b)
				})
			}
		}
		blocks = slices.DeleteFunc(blocks, func(b docs.Block) bool { return !b.Run() })
		if len(blocks) == 0 {
			continue
		}
		ran++
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.furnish(file)
			if !slices.Contains(bare, file) {
				m.followScripts(t, quickstart, 1)
			}
			for _, b := range blocks {
				m.follow(t, b)
			}
		})
	}
	if ran < 5 {
		t.Errorf("%d documents only have commands", ran)
	}
}

// furnish puts onto the machine what a document takes for granted.
func (m *machine) furnish(document string) {
	m.t.Helper()
	switch document {
	case "docs/tasks/upgrade.md":
		m.put("", fileOf(m.t, older, ".deb"))
		m.put("old", fileOf(m.t, older, ".deb"))
		m.put("new", fileOf(m.t, newer, ".deb"))
	case "packaging/README.md":
		m.put("", fileOf(m.t, newer, ".tar.gz"))
	case "docs/tasks/registries.md":
		m.put("", fileOf(m.t, newer, ".deb"))
		// Its certificate is of an authority that nobody else knows.
		r := registry.New(m.t, registry.At(m.listen("192.0.2.10:443"), "registry.example.com"), registry.WithTLS(), registry.WithUser("robot", "secret"))
		r.Push(m.t, "shop:1", registry.FromArchive(m.t, checkout("bin/images/web.tar"), node.Image))
		m.put("", r.CAFile())
	default:
		m.put("", fileOf(m.t, newer, ".deb"))
	}
}

// followScripts does what the first n scripts of a document say.
func (m *machine) followScripts(t *testing.T, file string, n int) {
	t.Helper()
	blocks, err := docs.Blocks(checkout("."), file)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		if b.Language == "sh" && n > 0 {
			n--
			m.follow(t, b)
		}
	}
}

// follow does what a block says.
func (m *machine) follow(t *testing.T, b docs.Block) {
	t.Helper()
	begun := time.Now()
	if b.Language == "sh" {
		if said, err := m.try(b.Text); err != nil {
			t.Fatalf("%s: %v\n%s", &b, err, said)
		}
	} else {
		for _, c := range commands(b.Text) {
			if err := m.expect(c); err != nil {
				t.Fatalf("%s: # %s\n%v", &b, c.line, err)
			}
		}
	}
	t.Logf("%s took %s", &b, time.Since(begun).Round(100*time.Millisecond))
}

// command is one of a console block.
type command struct {
	line string
	// want is what it prints; after is what follows once it was interrupted, if it is.
	want, after []string
	interrupted bool
}

func commands(text string) []command {
	var list []command
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if typed, ok := strings.CutPrefix(line, "# "); ok {
			list = append(list, command{line: typed})
			continue
		}
		if len(list) == 0 {
			list = append(list, command{line: "true"}) // a block that shows no command matches nothing
		}
		c := &list[len(list)-1]
		switch {
		case line == "^C":
			c.interrupted = true
		case c.interrupted:
			c.after = append(c.after, line)
		default:
			c.want = append(c.want, line)
		}
	}
	for i := range list {
		for _, lines := range []*[]string{&list[i].want, &list[i].after} {
			for n := len(*lines); n > 0 && (*lines)[n-1] == ""; n = len(*lines) {
				*lines = (*lines)[:n-1] // between commands
			}
		}
	}
	return list
}

// looks are commands that change nothing, so that they may be tried until they show what is expected.
var looks = regexp.MustCompile(`^(deckhand (pods|top|get|describe|why|logs|events|images|config|version|journal)|curl|cat|ls|systemctl (status|is-active))\b`)

// expect runs a command and compares what it prints.
func (m *machine) expect(c command) error {
	end := time.Now().Add(patience)
	for {
		s := m.begin(c.line)
		err := s.compare(c)
		if err == nil || !looks.MatchString(c.line) || time.Now().After(end) {
			return err
		}
		time.Sleep(retry)
	}
}

// quiet is how long a command that goes on has to be silent before it is left to itself.
const quiet = 3 * time.Second

func (s *session) compare(c command) error {
	begun, changed, last := time.Now(), time.Now(), ""
	for {
		running := s.running()
		said := s.said()
		if said != last {
			last, changed = said, time.Now()
		}
		same := alike(c.want, strings.Split(strings.TrimRight(said, "\n"), "\n"))
		switch {
		case same && c.interrupted && running:
			return s.interrupt(c)
		case same && (!running || time.Since(changed) > quiet):
			return nil
		case !running, time.Since(begun) > patience:
			return fmt.Errorf("it printed:\n%s\nand not:\n%s", said, strings.Join(c.want, "\n"))
		}
		time.Sleep(retry)
	}
}

// interrupt does what Ctrl-C does, and compares what follows.
func (s *session) interrupt(c command) error {
	process, err := os.FindProcess(-s.cmd.Process.Pid)
	if err == nil {
		err = process.Signal(os.Interrupt)
	}
	if err != nil {
		return err
	}
	if err := s.wait(); err != nil {
		return err
	}
	if said := s.said(); !alike(append(append(slices.Clone(c.want), "..."), c.after...), strings.Split(strings.TrimRight(said, "\n"), "\n")) {
		return fmt.Errorf("interrupted, it has printed:\n%s\nand not:\n%s", said, strings.Join(append(c.want, c.after...), "\n"))
	}
	return nil
}

// differing is what differs from run to run, with what stands in for it.
var differing = []struct {
	what *regexp.Regexp
	as   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s|m|h|d)(\d+(s|m|h))*\b`), "AGE"},
	{regexp.MustCompile(`\b10\.72\.\d+\.\d+\b`), "ADDRESS"},
	{regexp.MustCompile(`\bsha256:[0-9a-f]+\b`), "DIGEST"},
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "HASH"},
	{regexp.MustCompile(`\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`), "UID"},
	{regexp.MustCompile(`\bpid \d+\b`), "pid N"},
	{regexp.MustCompile(`\bv?\d+\.\d+\.\d+[-+~.\w]*`), "VERSION"},
	{regexp.MustCompile(`\b\d+(\.\d+)? ?(B|kB|KiB|MB|MiB|GB|GiB)\b`), "SIZE"},
	{regexp.MustCompile(` {2,}`), " "},
}

func plain(line string) string {
	line = strings.TrimSpace(line)
	for _, d := range differing {
		line = d.what.ReplaceAllString(line, d.as)
	}
	return line
}

// alike reports whether lines are as they should be. "..." stands for any lines, and within a line for any text.
func alike(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0 || len(got) == 1 && got[0] == ""
	}
	if want[0] == "..." {
		return alike(want[1:], got) || len(got) > 0 && alike(want, got[1:])
	}
	if len(got) == 0 {
		return false
	}
	line := "^" + strings.ReplaceAll(regexp.QuoteMeta(plain(want[0])), `\.\.\.`, ".*") + "$"
	return regexp.MustCompile(line).MatchString(plain(got[0])) && alike(want[1:], got[1:])
}

func TestAlike(t *testing.T) {
	for _, tc := range []struct {
		want, got string
		same      bool
	}{
		{"a  1s\nb", "a   12m3s\nb", true},
		{"a\n...\nz", "a\nb\nc\nz", true},
		{"a\n...", "a", true},
		{"a\nz", "a\nb\nz", false},
		{"started at 03:04:05...", "started at 10:11:12, by hand", true},
		{"v... of ... runs", "v1.2 of deckhand runs", true},
		{"Running", "Pending", false},
		{"", "", true},
		{"a 2.8 MB 10.72.0.2 sha256:ab12", "a 12 MB 10.72.0.14 sha256:ff", true},
	} {
		if got := alike(strings.Split(tc.want, "\n"), strings.Split(tc.got, "\n")); got != tc.same {
			t.Errorf("%q and %q: %v", tc.want, tc.got, got)
		}
	}
}

func fileOf(t *testing.T, dir, suffix string) string {
	t.Helper()
	path, err := filepath.Abs(file(t, dir, suffix))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
