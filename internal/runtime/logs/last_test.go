package logs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLast(t *testing.T) {
	const head = "2026-01-02T03:04:05Z stdout F "
	partial := "2026-01-02T03:04:05Z stdout P " + strings.Repeat("p", 16<<10) + "\n"
	many := strings.Repeat(head+"x\n", 5000)
	for name, tc := range map[string]struct {
		text        string
		lines, size int
		want        string
	}{
		"empty":                      {"", 80, 2048, ""},
		"all there is":               {sample, 80, 2048, "one\ntwo\nthree\nfour\n\n"},
		"so many lines":              {sample, 3, 2048, "three\nfour\n\n"},
		"so many bytes":              {sample, 80, 8, "e\nfour\n\n"},
		"no bytes":                   {sample, 80, 0, ""},
		"lines of a long log":        {many + head + "end\n", 2, 2048, "x\nend\n"},
		"an entry cut short":         {sample + head + "fi", 1, 2048, "\nfi"},
		"a line in pieces":           {many + strings.Repeat(partial, 9) + head + "end\n", 1, 5, "pend\n"},
		"one entry of all there is":  {head + strings.Repeat("y", 100<<10) + "\n", 80, 5, "yyyy\n"},
		"and still being written":    {head + strings.Repeat("y", 100<<10), 80, 5, "yyyyy"},
		"no text, however long":      {strings.Repeat("\x00", 100<<10), 1, 3, "\x00\x00\x00"},
		"the header it begins in":    {strings.Repeat("y", 1000) + head + strings.Repeat("z", bufferSize-10) + "\n", 80, bufferSize, strings.Repeat("z", bufferSize-maxHeader-1) + "\n"},
		"the short line it cuts":     {"secret " + head + "\n" + head + strings.Repeat("z", bufferSize-len(head)-2) + "\n", 80, bufferSize, strings.Repeat("z", bufferSize-len(head)-2) + "\n"},
		"a whole buffer is one line": {head + strings.Repeat("z", bufferSize-len(head)), 80, 3, "zzz"},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newLog(t)
			write(t, dir, "0.log", tc.text)
			got, err := r.Last(web, 0, tc.lines, tc.size)
			if err != nil || string(got) != tc.want {
				t.Errorf("%v, %d bytes %.60q, want %d bytes %.60q", err, len(got), got, len(tc.want), tc.want)
			}
		})
	}
}

func TestLastRefuses(t *testing.T) {
	r, dir := newLog(t)
	if _, err := r.Last(web, 0, 80, 2048); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: %v", err)
	}
	write(t, dir, "target", sample)
	if err := os.Symlink("target", filepath.Join(dir, "1.log")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "2.log"), 0o600); err != nil {
		t.Fatal(err)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		if b, err := r.Last(web, attempt, 80, 2048); err == nil || b != nil {
			t.Errorf("log %d: %q, %v", attempt, b, err)
		}
	}
}
