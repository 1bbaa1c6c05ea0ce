package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// sight is what a process finds when it looks around: see test/e2e/look_test.go.
type sight struct {
	// Dir is where it is, Status the fields of /proc/self/status.
	Dir    string
	Status map[string]string
	// Namespaces are those it is in, by kind; Streams what its stdin, stdout and stderr are.
	Namespaces map[string]string
	Streams    [3]string
	// Processes are the names of those it sees, by their IDs.
	Processes map[int]string
	// Files are the files it was to read, Made the owners ("0:0") of the directories it
	// was to make; or why it couldn't.
	Files, Made map[string]string
}

// look prints, as JSON in one line, what the process finds out about itself.
func look(args []string) error {
	flags := flag.NewFlagSet("look", flag.ContinueOnError)
	stay := flags.Bool("stay", false, "live until SIGTERM")
	made := map[string]string{}
	flags.Func("mkdir", "make this `directory`", func(dir string) error {
		made[dir] = makeOwned(dir)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, unix.SIGTERM)
	s := sight{Namespaces: map[string]string{}, Processes: map[int]string{}, Files: map[string]string{}, Made: made, Status: statusFields()}
	if err := s.fill(); err != nil {
		return err
	}
	for _, file := range flags.Args() {
		text, err := os.ReadFile(file)
		s.Files[file] = strings.TrimSpace(string(text))
		if err != nil {
			s.Files[file] = reason(err)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(s); err != nil {
		return err
	}
	if *stay {
		<-terms
	}
	return nil
}

func (s *sight) fill() (err error) {
	if s.Dir, err = os.Getwd(); err != nil {
		return err
	}
	for fd := range s.Streams {
		if s.Streams[fd], err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
			return err
		}
	}
	links, err := filepath.Glob("/proc/self/ns/*")
	if err != nil {
		return err
	}
	for _, link := range links {
		if s.Namespaces[filepath.Base(link)], err = os.Readlink(link); err != nil {
			return err
		}
	}
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if pid, failed := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && failed == nil {
			s.Processes[pid] = strings.TrimSpace(string(name))
		}
	}
	return nil
}

// statusFields are the fields of /proc/self/status; none if it can't be read.
func statusFields() map[string]string {
	fields := map[string]string{}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Join(strings.Fields(value), " ")
	}
	return fields
}

func makeOwned(dir string) string {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return reason(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return reason(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

// reason is an error without the path.
func reason(err error) string {
	var e *fs.PathError
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}
