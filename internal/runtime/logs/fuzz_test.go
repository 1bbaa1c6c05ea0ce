package logs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// FuzzGarbage: whatever is in the files, reading them ends without an error, yields no
// more than is there, and what is asked for in fewer words is a part of all there is.
func FuzzGarbage(f *testing.F) {
	f.Add([]byte(sample), []byte(sample), int64(3), int64(100), uint8(0))
	f.Add([]byte(`{"log":"docker\n","stream":"stdout","time":"2026-01-02T03:04:05Z"}`+"\n"), []byte("\x00\x00\x00"), int64(0), int64(0), uint8(1))
	f.Add([]byte("2026-01-02T03:04:05Z stdout P "), []byte(" stdout F\n2026-01-02T03:04:05Z stderr "), int64(1), int64(1), uint8(2))
	f.Add([]byte(strings.Repeat("overlong", 9000)), []byte("2026-99-99T99:99:99.Z stdout F x\n\n\n"), int64(2), int64(70000), uint8(7))
	f.Add([]byte("\x1f\x8b\x08\x00garbage"), []byte("\xff\xfe\r\n"), int64(9), int64(9), uint8(12))
	f.Fuzz(func(t *testing.T, old, current []byte, tail, limit int64, flags uint8) {
		root := t.TempDir()
		r := New(root, filewatch.New(20*time.Millisecond, discard), discard)
		dir := filepath.Join(root, "default_web-n1_u1", "web")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if flags&8 != 0 {
			write(t, dir, oldest, string(old))
		} else {
			pack(t, dir, oldest, string(old))
		}
		write(t, dir, older, string(old))
		write(t, dir, "0.log", string(current))
		read := func(opts Options) []byte {
			var got bytes.Buffer
			if err := r.Copy(context.Background(), &got, Request{Log: web, Options: opts}, nil); err != nil {
				t.Fatalf("%+v: %v", opts, err)
			}
			return got.Bytes()
		}
		everything := read(all)
		// A newline may be added where an entry has none.
		if most := 2*len(old) + len(current) + 6; len(everything) > most {
			t.Errorf("%d bytes of at most %d", len(everything), most)
		}
		if limit > 0 {
			if got := read(Options{Tail: -1, LimitBytes: limit}); !bytes.Equal(got, everything[:min(limit, int64(len(everything)))]) {
				t.Errorf("limit %d: %d bytes of %d", limit, len(got), len(everything))
			}
		}
		if tail >= 0 && len(read(Options{Tail: tail})) > len(everything) {
			t.Errorf("the tail is longer than everything")
		}
		opts := Options{Tail: -1, Timestamps: flags&1 != 0}
		if flags&2 != 0 {
			opts.Stream = Stderr
		}
		if flags&4 != 0 {
			opts.Since = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		}
		read(opts)
		if got, err := r.Last(web, 0, int(max(0, tail%100)), 2048); err != nil || len(got) > 2048 {
			t.Errorf("last: %d bytes, %v", len(got), err)
		}
	})
}
