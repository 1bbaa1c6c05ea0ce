package atomicwriter

import (
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheck(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, good := range []string{"a", "a/b/c", ".hidden", "...", ".", "a/..b", "a/...", "a b\n", "ü", long, strings.Repeat("d/", 99) + "f", "a:b"} {
		if err := Check(good); (err == nil) != (good != "." && good != "...") {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"": "is empty", "/": "is absolute", "/a": "is absolute", "..": `begins with ".."`, "../a": `begins with ".."`, "..data": `begins with ".."`,
		"a/..": `has ".." in it`, "a/../b": `has ".." in it`, `a\b`: "backslash", `\`: "backslash", "a\x00b": "NUL", "\xff": "UTF-8",
		"./a": "needless", "a//b": "needless", "a/": "needless", "a/./b": "needless", ".": "needless",
		long + "n": "255 bytes", "a/" + long + "n": "255 bytes", strings.Repeat("a/", 2048) + "a": "4096 bytes", strings.Repeat("d/", 100) + "f": "100 directories",
	} {
		err := Check(bad)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: %v", bad, err)
		} else if len(err.Error()) > 500 || strings.ContainsRune(err.Error(), 0) || !utf8.ValidString(err.Error()) {
			t.Errorf("a message that spoils a terminal: %d bytes, %q", len(err.Error()), err)
		}
	}
}

func TestPathsThatDontGoTogether(t *testing.T) {
	for _, paths := range [][]string{{"a", "a/b"}, {"a/b", "a/b/c/d"}, {"a/b", "a"}, {"x", "../y"}} {
		files := map[string]File{}
		for _, p := range paths {
			files[p] = File{}
		}
		if err := CheckAll(files); err == nil || !strings.Contains(err.Error(), `"`) {
			t.Errorf("%q: %v", paths, err)
		}
	}
	if err := CheckAll(map[string]File{"a/b": {}, "a/c": {}, "ab": {}}); err != nil {
		t.Error(err)
	}
}

// Whatever passes can be written below a directory, and nowhere else.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../a", "/a", "a/../../b", "..data", "a\x00", `a\..\b`, "./..", strings.Repeat("a/", 200)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if Check(p) != nil {
			return
		}
		if p != path.Clean(p) || path.IsAbs(p) || strings.HasPrefix(p, "..") || strings.ContainsAny(p, "\\\x00") || !utf8.ValidString(p) || p == "." || len(p) > 4096 {
			t.Errorf("%q passes", p)
		}
		for _, element := range strings.Split(p, "/") {
			if element == ".." || len(element) > 255 {
				t.Errorf("%q passes", p)
			}
		}
		if err := CheckAll(map[string]File{p: {}}); err != nil {
			t.Error(err)
		}
	})
}
