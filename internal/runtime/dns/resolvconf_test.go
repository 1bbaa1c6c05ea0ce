package dns

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want resolver
	}{
		"empty":          {"", resolver{}},
		"tabs, CRLF":     {"nameserver\t10.0.0.1\r\nsearch\ta.example \t b.example\r\n", resolver{servers: []string{"10.0.0.1"}, searches: []string{"a.example", "b.example"}}},
		"no last line":   {"nameserver 10.0.0.1", resolver{servers: []string{"10.0.0.1"}}},
		"comments":       {"# nameserver 10.0.0.1\n; nameserver 10.0.0.2\n nameserver 10.0.0.3 # the third\nsearch a.example ;b.example\n#\n", resolver{servers: []string{"10.0.0.3"}, searches: []string{"a.example"}}},
		"IPv6":           {"nameserver fe80::1%eth0\nnameserver 2001:db8::1\n", resolver{servers: []string{"fe80::1%eth0", "2001:db8::1"}}},
		"doubles":        {"nameserver 10.0.0.1\nnameserver 10.0.0.1\nsearch a.example a.example. b.example\n", resolver{servers: []string{"10.0.0.1"}, searches: []string{"a.example", "b.example"}}},
		"search wins":    {"domain a.example\nsearch b.example c.example\n", resolver{searches: []string{"b.example", "c.example"}}},
		"domain wins":    {"search b.example c.example\ndomain a.example d.example\n", resolver{searches: []string{"a.example"}}},
		"last wins":      {"search a.example\nsearch b.example\n", resolver{searches: []string{"b.example"}}},
		"root":           {"search . .. a..\n", resolver{searches: []string{".", "a"}}},
		"options":        {"options ndots:2 edns0\noptions ndots:3 rotate\n", resolver{options: []string{"ndots:3", "edns0", "rotate"}}},
		"no values":      {"nameserver\nsearch\ndomain\noptions\n", resolver{}},
		"no addresses":   {"nameserver ns.example\nnameserver 10.0.0\nnameserver 10.0.0.256\n", resolver{}},
		"other keywords": {"sortlist 10.0.0.0\nlookup file bind\nnameservers 10.0.0.1\nNAMESERVER 10.0.0.1\nü nameserver 10.0.0.1\n", resolver{}},
		"garbage":        {"search a\x00b \xff\xfe ünder.example good.example\nnameserver\x0010.0.0.1\n", resolver{searches: []string{"good.example"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(tt.text); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	file, link, pipe, huge := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe"), filepath.Join(dir, "huge")
	for path, text := range map[string]string{file: "nameserver 10.0.0.1\n", huge: strings.Repeat("# comment\n", maxFile/10+1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		file: "", link: "", os.DevNull: "",
		filepath.Join(dir, "none"): "doesn't exist: make it, or set resolvConf",
		dir:                        "is not a file",
		pipe:                       "is not a file",
		"/dev/zero":                "is not a file",
		huge:                       "is longer than 32768 bytes",
		file + "/below":            "the node's resolver configuration (resolvConf): open " + file + "/below: not a directory",
	} {
		got, err := read(path)
		if want == "" {
			if err != nil || len(got.servers) != 1 && path != os.DevNull {
				t.Errorf("%s: got %v, %v", path, got, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// FuzzParse: whatever is in the file, what a pod gets can be told to a runtime and
// written into a file: reading that again gives the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{nodeFile, "search . a..\noptions :\n", "domain x\r\nnameserver ::1%x # y", "options a:1 a:2\n\tsearch\u0085a", "\ufeffnameserver 1.1.1.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > maxFile {
			return
		}
		r := parse(s)
		for _, server := range r.servers {
			if _, err := netip.ParseAddr(server); err != nil {
				t.Error(err)
			}
		}
		for _, word := range slices.Concat(r.servers, r.searches, r.options) {
			if word == "" || strings.ContainsFunc(word, func(c rune) bool { return c <= ' ' || c > '~' }) {
				t.Errorf("%q", word)
			}
		}
		limited, _ := limit(r)
		if len(limited.servers) > 3 || len(limited.searches) > 32 || len(strings.Join(limited.searches, " ")) > 2048 {
			t.Errorf("beyond the limits: %v", limited)
		}
		if again := parse(written(r)); !equal(again, r) {
			t.Errorf("%q is read back as %q", r, again)
		}
	})
}

func written(r resolver) string {
	var b strings.Builder
	for _, s := range r.servers {
		b.WriteString("nameserver " + s + "\n")
	}
	b.WriteString("search " + strings.Join(r.searches, " ") + "\noptions " + strings.Join(r.options, " ") + "\n")
	return b.String()
}

func equal(a, b resolver) bool {
	return slices.Equal(a.servers, b.servers) && slices.Equal(a.searches, b.searches) && slices.Equal(a.options, b.options)
}
