package nodeapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/subprocess"
)

// Limits of queries for host logs, so that clients can't overload the host.
const (
	// maxQueries is the number of concurrent queries: each may run a program.
	maxQueries = 8
	// maxServices is the maximum number of services in a query, maxPattern the maximum length of its pattern in
	// bytes, and maxTail the maximum of tailLines.
	maxServices, maxPattern, maxTail = 16, 1 << 10, 100_000
	// maxLine is the maximum length of a line in bytes: a longer line counts as several. maxTailSize is the maximum
	// total size of the last lines (tailLines) that are held in memory, in bytes.
	maxLine, maxTailSize = 64 << 10, 16 << 20
)

// hostQuery is a query for host logs (KEP-2258): those of services, or one file below the log directory.
type hostQuery struct {
	services     []string
	file         string
	since, until time.Time
	boot         *int
	tail         int // -1 for all
	pattern      *regexp.Regexp
}

// unit matches names of services, made of the characters of systemd unit names without wildcards. A matching name can't
// be mistaken for an option of a program, and as a file name it can't lead out of a directory.
var unit = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9:_.@\\-]{0,254}$`)

func parseHostQuery(q url.Values) (h hostQuery, err error) {
	h.tail = -1
	for _, name := range q["query"] {
		switch {
		case name == "":
		case strings.Contains(name, "/"):
			if h.file != "" {
				return h, errors.New("query names more than one file")
			}
			h.file = strings.TrimPrefix(path.Clean("/"+name), "/")
		case !unit.MatchString(name) || strings.Contains(name, ".."):
			return h, fmt.Errorf("query %.300q is neither the name of a service nor a path", name)
		case !slices.Contains(h.services, name):
			h.services = append(h.services, name)
		}
	}
	for name, at := range map[string]*time.Time{"sinceTime": &h.since, "untilTime": &h.until} {
		if text := q.Get(name); text != "" {
			if *at, err = time.Parse(time.RFC3339, text); err != nil {
				return h, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if text := q.Get("boot"); text != "" {
		boot, err := strconv.ParseInt(text, 10, 32)
		if err != nil || boot > 0 {
			return h, fmt.Errorf("boot %.20q: it has to be 0 for this boot, -1 for the one before, and so on", text)
		}
		number := int(boot)
		h.boot = &number
	}
	if text := q.Get("tailLines"); text != "" {
		if h.tail, err = strconv.Atoi(text); err != nil || h.tail < 0 || h.tail > maxTail {
			return h, fmt.Errorf("tailLines %.20q: it has to be from 0 to %d", text, maxTail)
		}
	}
	if text := q.Get("pattern"); len(text) > maxPattern {
		return h, fmt.Errorf("pattern is longer than %d bytes", maxPattern)
	} else if text != "" {
		if h.pattern, err = regexp.Compile(text); err != nil {
			return h, fmt.Errorf("pattern: %w: it has to be a regular expression of RE2", err)
		}
	}
	switch {
	case h.file == "" && len(h.services) == 0:
		return h, errors.New("query names neither a service nor a file")
	case h.file != "" && len(h.services) > 0:
		return h, errors.New("query names both services and a file")
	case len(h.services) > maxServices:
		return h, fmt.Errorf("query names more than %d services", maxServices)
	case !h.since.IsZero() && !h.until.IsZero() && !h.since.Before(h.until):
		return h, errors.New("sinceTime must be before untilTime")
	case h.file != "" && (h.boot != nil || !h.since.IsZero() || !h.until.IsZero()):
		return h, errors.New("boot, sinceTime and untilTime aren't supported for a file: the time of its lines can't " +
			"be determined")
	}
	return h, nil
}

// journal returns the arguments of journalctl for the logs of these services. A value from the query is always a part
// of one argument, so that clients can't add options.
func (h hostQuery) journal(services []string) []string {
	args := []string{"--utc", "--no-pager", "--quiet", "--output=short-precise"}
	stamp := func(t time.Time) string { return fmt.Sprintf("@%d.%06d", t.Unix(), t.Nanosecond()/1000) }
	if h.boot != nil {
		args = append(args, fmt.Sprintf("--boot=%d", *h.boot))
	}
	if !h.since.IsZero() {
		args = append(args, "--since="+stamp(h.since))
	}
	if !h.until.IsZero() {
		args = append(args, "--until="+stamp(h.until))
	}
	if h.tail >= 0 && h.pattern == nil { // journalctl's --grep takes Perl regular expressions, which may run forever
		args = append(args, fmt.Sprintf("--lines=%d", h.tail))
	}
	for _, s := range services {
		args = append(args, "--unit="+s)
	}
	return args
}

// hostQuery serves a query for host logs. Logs of services come from the journal. If the journal has no lines of a
// service, they come from the file with the service's name.
func (a *api) hostQuery(w http.ResponseWriter, r *http.Request) {
	h, err := parseHostQuery(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case a.queries <- struct{}{}:
		defer func() { <-a.queries }()
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, fmt.Sprintf("%d queries for logs are answered at once", maxQueries), http.StatusTooManyRequests)
		return
	}
	text := &logWriter{w: w, flusher: http.NewResponseController(w)}
	lines := &lineFilter{out: bufio.NewWriterSize(text, 32<<10), pattern: h.pattern, tail: h.tail}
	if h.file != "" {
		err = a.copyFile(r.Context(), lines, h.file)
	} else {
		err = a.copyServices(r.Context(), lines, h)
	}
	if err == nil {
		err = lines.end()
	}
	switch {
	case err == nil:
		text.start()
	case text.begun: // a regular end of the answer would look complete
		panic(http.ErrAbortHandler)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
	case errors.Is(err, fs.ErrPermission):
		http.Error(w, err.Error(), http.StatusForbidden)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// copyServices writes the logs of services: first those in the journal, merged in the order of time, then those in
// files.
func (a *api) copyServices(ctx context.Context, to io.Writer, h hostQuery) error {
	program, errProgram := exec.LookPath(cmp.Or(a.Journalctl, "journalctl"))
	var there, others []string
	for _, s := range h.services {
		if errProgram == nil {
			one, err := subprocess.Program{Path: program, Args: hostQuery{tail: 1}.journal([]string{s}),
				Env: []string{"LC_ALL=C"}}.Run(ctx, nil, "")
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err == nil && len(one) > 0 {
				there = append(there, s)
				continue
			}
		}
		others = append(others, s)
	}
	if len(there) > 0 {
		if err := a.copyJournal(ctx, to, program, h.journal(there)); err != nil {
			return err
		}
	}
	for _, s := range others {
		err := fs.ErrNotExist
		for _, name := range []string{s, s + ".log", path.Join(s, s+".log")} {
			if err = a.copyFile(ctx, to, name); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errDirectory) {
				break
			}
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDirectory) {
			return fmt.Errorf("there are no logs of service %q, neither in the journal nor in %s: %w", s, a.HostLogs,
				fs.ErrNotExist)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyJournal writes the output of journalctl. It returns when ctx ends.
func (a *api) copyJournal(ctx context.Context, to io.Writer, program string, args []string) error {
	complaint := &subprocess.Tail{}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"LC_ALL=C", "PATH=/usr/bin:/bin"}
	cmd.Stderr = complaint
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err = io.Copy(to, out); err != nil {
		_ = cmd.Process.Kill() // its output is no longer read
	}
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("journalctl: %w: %s", ended, complaint.Shown(""))
	}
	return err
}

var errDirectory = errors.New("it is a directory")

// copyFile writes a file below the log directory, up to its present size.
func (a *api) copyFile(ctx context.Context, to io.Writer, name string) error {
	f, err := below(a.HostLogs).Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s: %w", name, errDirectory)
	}
	rest := io.LimitReader(f, info.Size())
	for {
		if n, err := io.CopyN(to, rest, 1<<20); err != nil || n == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// lineFilter writes the lines that match a pattern, or only the last of them.
type lineFilter struct {
	out     *bufio.Writer
	pattern *regexp.Regexp // nil for all
	tail    int            // -1 for all
	// rest is the beginning of a line whose end hasn't been written yet. last are the last lines; bytes is their total
	// size.
	rest  []byte
	last  [][]byte
	bytes int
}

// Write implements io.Writer.
func (l *lineFilter) Write(b []byte) (n int, err error) {
	if l.pattern == nil && l.tail < 0 {
		return l.out.Write(b)
	}
	for n = len(b); len(b) > 0 && err == nil; {
		end := bytes.IndexByte(b, '\n') + 1
		if end == 0 {
			end = len(b)
		}
		l.rest = append(l.rest, b[:end]...)
		b = b[end:]
		if whole := l.rest[len(l.rest)-1] == '\n'; whole || len(l.rest) >= maxLine { // a longer line counts as several
			err = l.line()
		}
	}
	return n, err
}

// line handles the line in rest.
func (l *lineFilter) line() error {
	line := l.rest
	l.rest = l.rest[:0]
	if len(line) == 0 || l.pattern != nil && !l.pattern.Match(bytes.TrimSuffix(line, []byte("\n"))) {
		return nil
	}
	if l.tail < 0 {
		_, err := l.out.Write(line)
		return err
	}
	l.last = append(l.last, bytes.Clone(line))
	l.bytes += len(line)
	for len(l.last) > l.tail || l.bytes > maxTailSize {
		l.bytes -= len(l.last[0])
		l.last = l.last[1:]
	}
	return nil
}

// end writes the remaining lines after all input.
func (l *lineFilter) end() error {
	if err := l.line(); err != nil {
		return err
	}
	for _, line := range l.last {
		if _, err := l.out.Write(line); err != nil {
			return err
		}
	}
	return l.out.Flush()
}
