package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// found is what a process finds at a path: see test/e2e/volumes_test.go.
type found struct {
	// Mode is as ls has it, Owner "0:0", FSType the file system's number, in hexadecimal.
	Mode, Owner, FSType string
	// Text is what is in a file, Link where a link leads; or why that can't be told.
	Text, Link string
}

// report is what became of a survey.
type report struct {
	// Tried is what became of the attempts, in the words of the flags: "ok", or why not.
	Tried map[string]string
	Files map[string]found
}

// maxText is how much of a file is told.
const maxText = 4096

// survey prints, as JSON in one line, what is in directories, after trying to change something there.
func survey(args []string) error {
	flags := flag.NewFlagSet("survey", flag.ContinueOnError)
	stay := flags.Bool("stay", false, "live until SIGTERM")
	r := report{Tried: map[string]string{}, Files: map[string]found{}}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	try := func(name, usage string, do func(path, value string) error) {
		flags.Func(name, usage, func(text string) error {
			path, value, _ := strings.Cut(text, "=")
			r.Tried[text] = "ok"
			if err := do(path, value); err != nil {
				r.Tried[text] = reason(err)
			}
			return nil
		})
	}
	try("write", "`PATH=TEXT`: make the file hold the text", func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) })
	try("fill", "`PATH=MIB`: make the file that large, of real blocks", fill)
	try("link", "`PATH=TARGET`: make a link", func(path, to string) error { return os.Symlink(to, path) })
	try("tmpfs", "`PATH`: mount a file system there", func(path, _ string) error {
		return errors.Join(os.MkdirAll(path, 0o755), unix.Mount("tmpfs", path, "tmpfs", 0, "size=1m"))
	})
	try("until", "`PATH=TEXT`: wait until the file holds the text", func(path, text string) error { return until(ctx, path, text) })
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, dir := range flags.Args() {
		if err := r.walk(dir); err != nil {
			return err
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	if *stay {
		<-ctx.Done()
	}
	return nil
}

func (r *report) walk(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			r.Files[path] = found{Text: reason(err)}
			return nil
		}
		f, err := one(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an older version of a volume, which went meanwhile
		}
		r.Files[path] = f
		return err
	})
}

// one tells of a path; of a link, also of what it leads to.
func one(path string) (f found, err error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		if f.Link, err = os.Readlink(path); err != nil {
			return f, err
		}
		info, err = os.Stat(path)
		if err != nil {
			f.Text = reason(err)
			return f, nil
		}
	}
	if err != nil {
		return f, err
	}
	st := info.Sys().(*syscall.Stat_t)
	f.Mode, f.Owner = info.Mode().String(), fmt.Sprintf("%d:%d", st.Uid, st.Gid)
	if info.Mode().IsRegular() {
		f.Text = beginning(path)
	}
	var at unix.Statfs_t
	if err := unix.Statfs(path, &at); err != nil {
		return f, err
	}
	f.FSType = strconv.FormatInt(at.Type, 16)
	return f, nil
}

// beginning is that of what is in a file.
func beginning(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return reason(err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxText))
	if err != nil {
		return reason(err)
	}
	return string(text)
}

// fill writes so many MiB.
func fill(path, mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	for range n {
		if _, err := f.Write(block); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// until waits until a file holds a text. Meanwhile all files beside it hold the same one, whenever
// they are looked at: a reader that enters a directory and stays there sees no half of an update.
func until(ctx context.Context, path, text string) error {
	for ctx.Err() == nil {
		got, err := os.ReadFile(path)
		if err == nil && string(got) == text {
			return nil
		}
		if err := alike(filepath.Dir(path)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
	return ctx.Err()
}

// alike fails if the files of a directory's newest version differ.
func alike(dir string) error {
	root, err := os.OpenRoot(filepath.Join(dir, "..data"))
	if err != nil {
		return nil // it isn't a directory of that kind
	}
	defer root.Close()
	texts := map[string]string{}
	err = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := root.ReadFile(path)
		texts[string(text)] = path
		return err
	})
	if err == nil && len(texts) > 1 { // a version that is out of date may go meanwhile
		return fmt.Errorf("half of an update: %q", texts)
	}
	return nil
}
