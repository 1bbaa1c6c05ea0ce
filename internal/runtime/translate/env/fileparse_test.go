package env_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

func TestParse(t *testing.T) {
	type vars = map[string]string
	for _, tc := range []struct {
		name, text string
		want       vars
	}{
		{"empty file", "", vars{}},
		{"one variable", "A='1'\n", vars{"A": "1"}},
		{"no line feed at the end", "A='1'", vars{"A": "1"}},
		{"the documentation's example", "# comment\nDB_ADDRESS='address'\n\nMULTI='line1\nline2'\n", vars{"DB_ADDRESS": "address", "MULTI": "line1\nline2"}},
		{"empty value", "A=''", vars{"A": ""}},
		{"blanks before the name are ignored", " \t A='1'", vars{"A": "1"}},
		{"blanks around = are ignored", "A \t=\t  '1'", vars{"A": "1"}},
		{"blanks after the value are ignored", "A='1' \t \nB='2'", vars{"A": "1", "B": "2"}},
		{"blank lines are ignored", "\n \n\t\nA='1'\n\n", vars{"A": "1"}},
		{"comments", "#A='1'\n  # it's B='2'\n#\nC='3'", vars{"C": "3"}},
		{"no comment in a value", "A='# 1'\nB='\n# 2'", vars{"A": "# 1", "B": "\n# 2"}},
		{"nothing in a value is replaced", `A='\n\'` + "\nB='$A ${A} `A` \"x\"  y\t'", vars{"A": `\n\`, "B": "$A ${A} `A` \"x\"  y\t"}},
		{"a declaration in a value is none", "A='\nB=2\n'", vars{"A": "\nB=2\n"}},
		{"= in a value", "A='b=c'", vars{"A": "b=c"}},
		{"the last of a name counts", "A='1'\nB='x'\nA='2'", vars{"A": "2", "B": "x"}},
		{"any printable name", "a.b-c:d/e[0] f='1'\n1='2'\n~!\"$%='3'", vars{"a.b-c:d/e[0] f": "1", "1": "2", "~!\"$%": "3"}},
		{"a carriage return in a value", "A='1\r\n2'", vars{"A": "1\r\n2"}},
		{"bytes that are no UTF-8", "A='\xff\xfe'", vars{"A": "\xff\xfe"}},
		{"the longest name", strings.Repeat("n", 128) + "='1'", vars{strings.Repeat("n", 128): "1"}},
		{"the longest value", "A='" + strings.Repeat("v", 32<<10) + "'", vars{"A": strings.Repeat("v", 32<<10)}},
		{"the largest file", "#" + strings.Repeat("c", 64<<10-1), vars{}},
	} {
		got, err := env.ParseFile([]byte(tc.text))
		if err != nil || !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v\n%s", tc.name, err, cmp.Diff(tc.want, got))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"no quotes", "A=s3cret", "line 1: the value isn't in single quotes: write NAME='value'"},
		{"no value", "A=", "line 1: the value isn't in single quotes: write NAME='value'"},
		{"double quotes", `A="s3cret"`, "line 1: the value isn't in single quotes: write NAME='value'"},
		{"interpolation instead of a value", "A=${s3cret}", "line 1: the value isn't in single quotes: write NAME='value'"},
		{"value in the next line", "A=\n's3cret'", "line 1: the value isn't in single quotes: write NAME='value'"},
		{"interpolation after the value", "A='s3cret'$OTHER", "line 1: something follows the closing quote of the value, and nothing may: neither another string nor a comment"},
		{"adjacent strings", "A='s3''cret'", "line 1: something follows the closing quote of the value, and nothing may: neither another string nor a comment"},
		{"separate strings", "A='s3' 'cret'", "line 1: something follows the closing quote of the value, and nothing may: neither another string nor a comment"},
		{"comment after the value", "A='s3cret' # it is", "line 1: something follows the closing quote of the value, and nothing may: neither another string nor a comment"},
		{"two in a line", "A='s3cret' B='s3cret'", "line 1: something follows the closing quote of the value, and nothing may: neither another string nor a comment"},
		{"CR LF", "# c\nA='s3cret'\r\n", "line 2: a carriage return follows the value: end lines with a line feed alone"},
		{"CR alone in a line", "A='s3cret'\n\r\n", "line 2: there is no \"=\" in it: write NAME='value'"},
		{"no =", "A='x\ny\nz'\n\ns3cret\n", "line 5: there is no \"=\" in it: write NAME='value'"},
		{"= in the next line", "s3cret\n='x'", "line 1: there is no \"=\" in it: write NAME='value'"},
		{"no closing quote", "A='x'\nB='s3cret\n\n", "line 2: the value has no closing quote"},
		{"no name", "='s3cret'", "line 1: the name is empty or has other characters than printable ASCII"},
		{"blank name", "  ='s3cret'", "line 1: the name is empty or has other characters than printable ASCII"},
		{"a tab in the name", "A\ts3cret='x'", "line 1: the name is empty or has other characters than printable ASCII"},
		{"a byte order mark", "\ufeffA='s3cret'", "line 1: the name is empty or has other characters than printable ASCII"},
		{"a name that isn't ASCII", "s3crét='x'", "line 1: the name is empty or has other characters than printable ASCII"},
		{"NUL in a value", "A='s3cret\x00'", "line 1: the value has a NUL byte, which no environment variable can have"},
		{"name too long", strings.Repeat("n", 129) + "='s3cret'", "line 1: the name is longer than the 128 bytes it may have"},
		{"value too long", "A='" + strings.Repeat("s3cret", 32<<10/6+1) + "'", "line 1: the value is longer than the 32 KiB it may have"},
		{"file too large", "#" + strings.Repeat("c", 64<<10), "it is larger than the 64 KiB an env file may have"},
	} {
		got, err := env.ParseFile([]byte(tc.text))
		if err == nil || err.Error() != tc.want || got != nil {
			t.Errorf("%s: %v, %v, want %s", tc.name, got, err, tc.want)
		}
	}
}

// A shell that reads a file sets what Parse returns, as the documentation promises:
// a file can be moved between the two.
func TestShellReadsTheSame(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "env")
	rapid.Check(t, func(t *rapid.T) {
		want := map[string]string{}
		var text strings.Builder
		for range rapid.IntRange(0, 5).Draw(t, "variables") {
			name := rapid.StringMatching(`[A-C]x?`).Draw(t, "name")
			value := rapid.StringMatching(`[a-c \t\n\r#$={}"\\~*;&|<>()]{0,20}`).Draw(t, "value")
			want[name] = value
			text.WriteString(rapid.SampledFrom([]string{"", " ", "\t", "\n", "# it's\n", " #\n\n"}).Draw(t, "before"))
			text.WriteString(name + "='" + value + "'")
			text.WriteString(rapid.SampledFrom([]string{"\n", " \n", "\t\n"}).Draw(t, "after"))
		}
		got, err := env.ParseFile([]byte(text.String()))
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("%q: %v, %v", text.String(), got, err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		shell := exec.Command("/bin/sh", "-c", `set -a; . "$0"; exec /usr/bin/env -0`, path)
		shell.Env = []string{"PATH=/usr/bin:/bin"}
		out, err := shell.Output()
		if err != nil {
			t.Fatalf("%q: %v", text.String(), err)
		}
		said := map[string]string{}
		for v := range strings.SplitSeq(string(out), "\x00") {
			name, value, _ := strings.Cut(v, "=")
			said[name] = value
		}
		for name, value := range want {
			if said[name] != value {
				t.Fatalf("%q: the shell has %s=%q", text.String(), name, said[name])
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "A='1'\n", "# c\n A = 'x\ny' \nB=''", "A='1''2'", "A=\"1\"", "A='", "=''", "A='\x00'", "A='1'\r\n", "\ufeffA=''"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		vars, err := env.ParseFile(text)
		if err != nil {
			if vars != nil {
				t.Fatal("variables and an error")
			}
			return
		}
		var again strings.Builder
		for name, value := range vars {
			if name == "" || len(name) > 128 || strings.ContainsAny(name, "=\n\x00") || len(value) > 32<<10 || strings.ContainsAny(value, "'\x00") {
				t.Fatalf("%q=%q was taken", name, value)
			}
			again.WriteString(name + "='" + value + "'\n")
		}
		if again.Len() > 64<<10 {
			return // the line feed after the last variable
		}
		got, err := env.ParseFile([]byte(again.String()))
		if err != nil || !maps.Equal(got, vars) {
			t.Fatalf("%q became %q, %v", vars, got, err)
		}
	})
}
