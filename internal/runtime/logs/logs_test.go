package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = logr.Discard()

var web = Log{Namespace: "default", Pod: "web-n1", UID: "u1", Container: "web"}

// newLog returns a reader and the directory of web's logs.
func newLog(t testing.TB) (*Reader, string) {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "default_web-n1_u1", "web")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return New(root, filewatch.New(20*time.Millisecond, discard), discard), dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

const sample = `2026-01-02T03:04:05.1Z stdout F one
2026-01-02T03:04:06.000000002+01:00 stderr F two
2026-01-02T03:04:07Z stdout P thr
2026-01-02T03:04:08Z stdout F ee
2026-01-02T03:04:09Z stdout F:later-tag four
2026-01-02T03:04:10Z stdout F 
`

func TestCopy(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		opts Options
		want string
	}{
		"everything":            {sample, Options{Tail: -1}, "one\ntwo\nthree\nfour\n\n"},
		"empty":                 {"", Options{Tail: -1}, ""},
		"tail counts lines":     {sample, Options{Tail: 3}, "three\nfour\n\n"},
		"tail nothing":          {sample, Options{Tail: 0}, ""},
		"tail more than it has": {sample, Options{Tail: 99}, "one\ntwo\nthree\nfour\n\n"},
		"stdout":                {sample, Options{Tail: -1, Stream: Stdout}, "one\nthree\nfour\n\n"},
		"stderr":                {sample, Options{Tail: -1, Stream: Stderr}, "two\n"},
		"both":                  {sample, Options{Tail: -1, Stream: Both}, "one\ntwo\nthree\nfour\n\n"},
		"limit within a line":   {sample, Options{Tail: -1, LimitBytes: 6}, "one\ntw"},
		"limit at a line's end": {sample, Options{Tail: -1, LimitBytes: 8}, "one\ntwo\n"},
		"since": {sample, Options{Tail: -1, Since: time.Date(2026, 1, 2, 3, 4, 9, 0, time.UTC)},
			"four\n\n"},
		"timestamps are of fixed width and only before lines": {sample, Options{Tail: 4, Timestamps: true},
			"2026-01-02T03:04:06.000000002+01:00 two\n" +
				"2026-01-02T03:04:07.000000000Z three\n" +
				"2026-01-02T03:04:09.000000000Z four\n" +
				"2026-01-02T03:04:10.000000000Z \n"},
		"an entry cut short":       {sample + "2026-01-02T03:04:11Z stdout F fi", Options{Tail: -1}, "one\ntwo\nthree\nfour\n\nfi"},
		"damage is shown":          {"\x00\x00oops\n" + sample, Options{Tail: -1, Timestamps: false}, "\x00\x00oops\none\ntwo\nthree\nfour\n\n"},
		"damage with timestamps":   {"oops\n", Options{Tail: -1, Timestamps: true}, "oops\n"},
		"a line of many buffers":   {longEntry("F"), Options{Tail: -1}, longText + "\n"},
		"tail of a long line":      {sample + longEntry("F"), Options{Tail: 1}, longText + "\n"},
		"a long partial entry":     {longEntry("P") + longEntry("F"), Options{Tail: 1}, longText + longText + "\n"},
		"many lines over buffers":  {strings.Repeat("2026-01-02T03:04:05Z stdout F x\n", 5000), Options{Tail: -1}, strings.Repeat("x\n", 5000)},
		"tail reaches over blocks": {strings.Repeat("2026-01-02T03:04:05Z stdout F x\n", 5000), Options{Tail: 4000}, strings.Repeat("x\n", 4000)},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newLog(t)
			write(t, dir, "0.log", tc.text)
			var got bytes.Buffer
			if err := r.Copy(t.Context(), &got, Request{Log: web, Options: tc.opts}, nil); err != nil {
				t.Fatal(err)
			}
			if got.String() != tc.want {
				t.Errorf("got  %.300q\nwant %.300q", got.String(), tc.want)
			}
		})
	}
}

var longText = strings.Repeat("0123456789", bufferSize/3)

func longEntry(tag string) string {
	return "2026-01-02T03:04:05Z stdout " + tag + " " + longText + "\n"
}

// The last n lines are the last n of all lines, wherever blocks and partial entries lie.
func TestTailIsTheEndOfEverything(t *testing.T) {
	r, dir := newLog(t)
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var lines []string
		for range rapid.IntRange(0, 60).Draw(t, "lines") {
			var line strings.Builder
			for part := range rapid.IntRange(1, 3).Draw(t, "parts") {
				if part > 0 {
					text.WriteString("\n")
				}
				piece := strings.Repeat("y", rapid.IntRange(0, 4000).Draw(t, "length"))
				line.WriteString(piece)
				text.WriteString("2026-01-02T03:04:05Z stdout P " + piece)
			}
			s := text.String()
			i := strings.LastIndex(s, " P ")
			text.Reset()
			text.WriteString(s[:i] + " F " + s[i+3:] + "\n")
			lines = append(lines, line.String()+"\n")
		}
		n := rapid.IntRange(0, 70).Draw(t, "n")
		if err := os.WriteFile(filepath.Join(dir, "0.log"), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := r.Copy(context.Background(), &got, Request{Log: web, Options: Options{Tail: int64(n)}}, nil); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(lines[max(0, len(lines)-n):], ""); got.String() != want {
			t.Fatalf("tail %d of %d lines: got %d bytes, want %d", n, len(lines), got.Len(), len(want))
		}
	})
}

func TestAttemptsAndOnward(t *testing.T) {
	r, dir := newLog(t)
	for _, n := range []int{10, 2, 9} {
		write(t, dir, fmt.Sprintf("%d.log", n), fmt.Sprintf("2026-01-02T03:04:05Z stdout F attempt %d\n", n))
	}
	write(t, dir, "2.log.20260102-030405", "rotated\n")
	write(t, dir, "x.log", "not a log\n")
	attempts, err := r.Attempts(web)
	if err != nil || !slices.Equal(attempts, []int{2, 9, 10}) {
		t.Fatalf("attempts: %v, %v", attempts, err)
	}
	var got bytes.Buffer
	err = r.Copy(t.Context(), &got, Request{Log: web, Attempt: 9, Onward: true, Options: Options{Tail: -1}}, nil)
	if want := "attempt 9\nattempt 10\n"; err != nil || got.String() != want {
		t.Errorf("onward: got %q, %v, want %q", got.String(), err, want)
	}
	other := web
	other.Container = "none"
	if attempts, err := r.Attempts(other); err != nil || attempts != nil {
		t.Errorf("a container without logs: %v, %v", attempts, err)
	}
	if err := r.Copy(t.Context(), &got, Request{Log: other}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no log: got %v, want fs.ErrNotExist", err)
	}
}

func TestOnlyRegularFilesBelowTheRootAreLogs(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("root's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(t *testing.T, dir string) error{
		"a link in the file's place": func(_ *testing.T, dir string) error {
			return os.Symlink(secret, filepath.Join(dir, "0.log"))
		},
		"a link to a neighbour's log": func(t *testing.T, dir string) error {
			write(t, dir, "1.log", sample)
			return os.Symlink("1.log", filepath.Join(dir, "0.log"))
		},
		"a link in the directory's place": func(_ *testing.T, dir string) error {
			if err := os.Remove(dir); err != nil {
				return err
			}
			if err := os.Rename(secret, filepath.Join(filepath.Dir(secret), "0.log")); err != nil {
				return err
			}
			return os.Symlink(filepath.Dir(secret), dir)
		},
		"a FIFO": func(_ *testing.T, dir string) error { return unix.Mkfifo(filepath.Join(dir, "0.log"), 0o600) },
		"a directory": func(_ *testing.T, dir string) error {
			return os.Mkdir(filepath.Join(dir, "0.log"), 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newLog(t)
			if err := prepare(t, dir); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			err := r.Copy(t.Context(), &got, Request{Log: web, Options: Options{Tail: -1}}, nil)
			if err == nil || got.Len() > 0 {
				t.Fatalf("read %q, %v", got.String(), err)
			}
			if !strings.Contains(err.Error(), "not read as a log") {
				t.Errorf("unclear error: %v", err)
			}
		})
	}
}
