package logs

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// pack writes a compressed file.
func pack(t testing.TB, dir, name, text string) {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, name, b.String())
}

const (
	oldest = "0.log.20260102-030405.gz"
	older  = "0.log.20260102-030406"
)

func entry(stream, tag, text string) string {
	return "2026-01-02T03:04:05Z " + stream + " " + tag + " " + text + "\n"
}

// copied is what a reading yields.
func copied(t *testing.T, r *Reader, req Request) string {
	t.Helper()
	req.Log = web
	var got bytes.Buffer
	if err := r.Copy(t.Context(), &got, req, nil); err != nil {
		t.Fatal(err)
	}
	return got.String()
}

func TestReadingAcrossRotation(t *testing.T) {
	plain := []string{line("1") + line("2"), line("3") + line("4"), line("5") + line("6")}
	// A rotation splits a line wherever the runtime is just then.
	split := []string{line("1") + entry("stdout", "P", "2a") + entry("stderr", "P", "E"), entry("stdout", "P", "2b"), entry("stderr", "F", "F") + entry("stdout", "F", "2c") + line("3")}
	for name, tc := range map[string]struct {
		files []string
		opts  Options
		want  string
	}{
		"everything":                      {plain, Options{Tail: -1}, "1\n2\n3\n4\n5\n6\n"},
		"tail of the newest":              {plain, Options{Tail: 1}, "6\n"},
		"tail is just the newest":         {plain, Options{Tail: 2}, "5\n6\n"},
		"tail of the one before":          {plain, Options{Tail: 3}, "4\n5\n6\n"},
		"tail is just the two":            {plain, Options{Tail: 4}, "3\n4\n5\n6\n"},
		"tail of a compressed one":        {plain, Options{Tail: 5}, "2\n3\n4\n5\n6\n"},
		"tail is all there is":            {plain, Options{Tail: 6}, "1\n2\n3\n4\n5\n6\n"},
		"tail is more":                    {plain, Options{Tail: 7}, "1\n2\n3\n4\n5\n6\n"},
		"tail nothing":                    {plain, Options{Tail: 0}, ""},
		"limit":                           {plain, Options{Tail: -1, LimitBytes: 7}, "1\n2\n3\n4"},
		"timestamps":                      {split, Options{Tail: -1, Timestamps: true, Stream: Stdout}, "2026-01-02T03:04:05.000000000Z 1\n2026-01-02T03:04:05.000000000Z 2a2b2c\n2026-01-02T03:04:05.000000000Z 3\n"},
		"split lines":                     {split, Options{Tail: -1}, "1\nEF\n2a2b2c\n3\n"},
		"a split line of stdout":          {split, Options{Tail: -1, Stream: Stdout}, "1\n2a2b2c\n3\n"},
		"a split line of stderr":          {split, Options{Tail: -1, Stream: Stderr}, "EF\n"},
		"tail does not begin in a line":   {split, Options{Tail: 3}, "EF\n2a2b2c\n3\n"},
		"an entry without its end":        {[]string{line("1"), line("2") + "2026-01-02T03:04:05Z stdout F cut", line("3")}, Options{Tail: -1}, "1\n2\ncut\n3\n"},
		"the begin of a header":           {[]string{line("1"), "2026-01-02T03:0", line("3")}, Options{Tail: -1}, "1\n2026-01-02T03:0\n3\n"},
		"an empty one":                    {[]string{line("1"), "", line("3")}, Options{Tail: 2}, "1\n3\n"},
		"empty, just after rotation":      {[]string{line("1"), line("2"), ""}, Options{Tail: 1}, "2\n"},
		"a long entry without its end":    {[]string{"", strings.TrimSuffix(longEntry("F"), "\n"), line("3")}, Options{Tail: -1}, longText + "\n3\n"},
		"long partial entries, also tail": {[]string{line("1") + longEntry("P"), longEntry("P"), entry("stdout", "F", "end")}, Options{Tail: 1}, longText + longText + "end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newLog(t)
			pack(t, dir, oldest, tc.files[0])
			write(t, dir, older, tc.files[1])
			write(t, dir, "0.log", tc.files[2])
			write(t, dir, "0.log.20260102-030406.tmp", "unfinished")
			pack(t, dir, "1.log.20260102-030405.gz", line("another instance"))
			if got := copied(t, r, Request{Options: tc.opts}); got != tc.want {
				t.Errorf("got  %.300q\nwant %.300q", got, tc.want)
			}
		})
	}
}

// The last n lines are the last n of all lines, in whatever files they are.
func TestTailAcrossFilesIsTheEndOfEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, err := os.MkdirTemp("", "logs")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(root)
		r := New(root, filewatch.New(20*time.Millisecond, discard), discard)
		dir := filepath.Join(root, "default_web-n1_u1", "web")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var lines []string
		rest := ""
		files := rapid.IntRange(1, 5).Draw(t, "files")
		for i := range files {
			var text strings.Builder
			for range rapid.IntRange(0, 6).Draw(t, "entries") {
				piece := strings.Repeat("y", rapid.SampledFrom([]int{0, 1, 5, 4000, 40_000}).Draw(t, "length"))
				tag := rapid.SampledFrom([]string{"F", "F", "P"}).Draw(t, "tag")
				text.WriteString(entry("stdout", tag, piece))
				if rest += piece; tag == "F" {
					lines, rest = append(lines, rest+"\n"), ""
				}
			}
			name := "0.log"
			if i < files-1 {
				name = fmt.Sprintf("0.log.20260102-03040%d", i)
			}
			if i < files-1 && rapid.Bool().Draw(t, "packed") {
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, _ = w.Write([]byte(text.String()))
				_ = w.Close()
				name, text = name+".gz", strings.Builder{}
				text.Write(b.Bytes())
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		n := rapid.IntRange(0, 20).Draw(t, "n")
		var got bytes.Buffer
		if err := r.Copy(context.Background(), &got, Request{Log: web, Options: Options{Tail: int64(n)}}, nil); err != nil {
			t.Fatal(err)
		}
		want := strings.Join(lines[max(0, len(lines)-n):], "") + rest
		if got.String() != want {
			t.Fatalf("tail %d of %d lines: got %d bytes, want %d", n, len(lines), got.Len(), len(want))
		}
	})
}

func TestSinceAcrossFiles(t *testing.T) {
	r, dir := newLog(t)
	at := func(second int, text string) string {
		return fmt.Sprintf("2026-01-02T03:04:%02dZ stdout F %s\n", second, text)
	}
	pack(t, dir, oldest, at(1, "a")+at(2, "b"))
	write(t, dir, older, at(3, "c")+"damage of c\n"+at(4, "d")+"damage of d\n")
	write(t, dir, "0.log", at(5, "e"))
	noon := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	since := func(second int) Request {
		return Request{Options: Options{Tail: -1, Since: noon.Add(time.Duration(second) * time.Second)}}
	}
	for second, want := range map[int]string{
		0: "a\nb\nc\ndamage of c\nd\ndamage of d\ne\n",
		2: "b\nc\ndamage of c\nd\ndamage of d\ne\n",
		4: "d\ndamage of d\ne\n",
		5: "e\n",
		6: "",
	} {
		if got := copied(t, r, since(second)); got != want {
			t.Errorf("since second %d: got %q, want %q", second, got, want)
		}
	}
	// Files that nothing was written to since aren't read at all: what they hold that
	// claims to be newer doesn't show.
	for _, name := range []string{oldest, older} {
		if err := os.Chtimes(filepath.Join(dir, name), time.Time{}, noon.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := copied(t, r, since(0)), "e\n"; got != want {
		t.Errorf("with old files: got %q, want %q", got, want)
	}
	if err := os.Chtimes(filepath.Join(dir, "0.log"), time.Time{}, noon.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := copied(t, r, since(0)); got != "" {
		t.Errorf("with nothing but old files: got %q", got)
	}
}

// What can't be unpacked is left out, and the rest is read.
func TestDamagedCompressedFiles(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, oldest, "this isn't gzip")
	pack(t, dir, "0.log.20260102-030406.gz", strings.Repeat(line("in a file cut short"), 50_000))
	cut := filepath.Join(dir, "0.log.20260102-030406.gz")
	info, err := os.Stat(cut)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(cut, info.Size()/2); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "0.log.20260102-030407", "")
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "0.log.20260102-030408")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "0.log", line("last"))
	got := copied(t, r, Request{Options: all})
	if lines := strings.Count(got, "in a file cut short\n"); lines < 10_000 || !strings.HasSuffix(got, "\nlast\n") || strings.Contains(got, "root:") {
		t.Errorf("got %d lines, the last %q", lines, got[max(0, len(got)-40):])
	}
	if got := copied(t, r, Request{Options: Options{Tail: 100_000}}); !strings.HasSuffix(got, "\nlast\n") {
		t.Errorf("tail of damaged files ends with %q", got[max(0, len(got)-40):])
	}
}

// An instance has a log also in the moment in which the runtime hasn't made the new file yet.
func TestInTheMidstOfARotation(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, older, line("a"))
	if got := copied(t, r, Request{Options: all}); got != "a\n" {
		t.Errorf("got %q", got)
	}
	if attempts, err := r.Attempts(web); err != nil || !slices.Equal(attempts, []int{0}) {
		t.Errorf("attempts %v, %v", attempts, err)
	}
	// The compressed file is there, the original not gone yet.
	pack(t, dir, older+".gz", line("a"))
	if got := copied(t, r, Request{Options: all}); got != "a\n" {
		t.Errorf("got %q", got)
	}
}

func TestLastAcrossRotation(t *testing.T) {
	long := strings.Repeat(line(strings.Repeat("x", 70)), 400)
	for name, tc := range map[string]struct {
		old, current string
		lines        int
		want         string
	}{
		"nearly empty":       {line("a") + line("b"), line("c"), 2, "b\nc\n"},
		"empty":              {line("a") + line("b"), "", 2, "a\nb\n"},
		"a split line":       {line("a") + entry("stdout", "P", "b"), entry("stdout", "F", "c"), 1, "bc\n"},
		"an entry cut short": {line("a") + "2026-01-02T03:04:05Z stdout F b", line("c"), 3, "a\nb\nc\n"},
		"only so much":       {long + line("b"), line("c"), 2, "b\nc\n"},
		"the newest only":    {line("a"), long + line("b") + line("c"), 2, "b\nc\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, dir := newLog(t)
			pack(t, dir, oldest, line("compressed"))
			write(t, dir, older, tc.old)
			write(t, dir, "0.log", tc.current)
			got, err := r.Last(web, 0, tc.lines, 2048)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
		})
	}
}

func TestAnInstanceThatEndsWithABufferfulWithoutNewline(t *testing.T) {
	r, dir := newLog(t)
	zeros := strings.Repeat("\x00", bufferSize) // as a loss of power leaves them
	write(t, dir, "0.log", zeros)
	write(t, dir, "1.log", line("next"))
	if got := copied(t, r, Request{Onward: true, Options: Options{Tail: -1}}); got != zeros+"\nnext\n" {
		t.Errorf("after the zeros comes %q", got[bufferSize:])
	}
}

// Counting the lines of a long log takes a while, in which whoever asked may have gone.
func TestLookingForATailEndsWithTheContext(t *testing.T) {
	r, dir := newLog(t)
	pack(t, dir, oldest, line("1")+line("2"))
	write(t, dir, "0.log", line("3")+line("4"))
	parts, err := r.openParts(web, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(parts)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, p := range parts {
		if _, found, err := p.seekTail(ctx, 1); found || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: found is %v, error %v, want that the context ended", p.name, found, err)
		}
	}
}
