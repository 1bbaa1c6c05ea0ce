package nodeapi_test

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// journalctl stands in for the program: it says what its arguments are, and knows two services.
const journalctl = `#!/bin/sh
for a; do case "$a" in --lines=1) probe=1;; esac; done
case " $* " in
*" --unit=broken "*) echo "entry"; [ "$probe" ] || { echo "the journal is damaged" >&2; exit 1; };;
*" --unit=kubelet "*|*" --unit=getty@tty1.service "*) [ "$probe" ] && { echo entry; exit; }; for a; do printf '<%s>\n' "$a"; done; printf 'one\ntwo\nthree';;
esac
`

// TestHostQuery: logs of services come from the journal or from files, and whatever is asked for comes to the program as one argument, or not at all.
func TestHostQuery(t *testing.T) {
	n := newNode(t)
	conf := n.config()
	conf.SystemLogQuery, conf.Journalctl = true, filepath.Join(t.TempDir(), "journalctl")
	hidden := filepath.Join(t.TempDir(), "hidden")
	long := strings.Repeat("x", 200<<10)
	if err := errors.Join(os.WriteFile(conf.Journalctl, []byte(journalctl), 0o755), os.WriteFile(hidden, []byte("text of hidden"), 0o600), os.Mkdir(filepath.Join(n.logs, "nginx"), 0o755),
		os.WriteFile(filepath.Join(n.logs, "nginx", "nginx.log"), []byte("get\npost\nget again\n"), 0o600), os.WriteFile(filepath.Join(n.logs, "cron.log"), []byte("hourly\ndaily\n"), 0o600),
		os.WriteFile(filepath.Join(n.logs, "long"), []byte("a\n"+long+"\nz"), 0o600), os.Symlink(hidden, filepath.Join(n.logs, "out")), os.Symlink("nginx/nginx.log", filepath.Join(n.logs, "inside")),
		unix.Mkfifo(filepath.Join(n.logs, "pipe"), 0o644), os.Symlink("..", filepath.Join(n.logs, "up"))); err != nil {
		t.Fatal(err)
	}
	address, _ := serve(t, nodeapi.Routes(conf), open())
	const always = "<--utc>\n<--no-pager>\n<--quiet>\n<--output=short-precise>\n"
	for _, c := range []struct {
		query string // & stands between parameters, values are escaped here
		code  int
		text  string
	}{
		{"query=kubelet", 200, always + "<--unit=kubelet>\none\ntwo\nthree"},
		{"query=kubelet&query=getty@tty1.service&query=kubelet", 200, always + "<--unit=kubelet>\n<--unit=getty@tty1.service>\none\ntwo\nthree"},
		{"query=kubelet&boot=0", 200, always + "<--boot=0>\n<--unit=kubelet>\none\ntwo\nthree"},
		{"query=kubelet&boot=-2&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T05:04:05.25+01:00", 200, always + "<--boot=-2>\n<--since=@1767323045.000000>\n<--until=@1767326645.250000>\n<--unit=kubelet>\none\ntwo\nthree"},
		{"query=kubelet&tailLines=2", 200, "two\nthree"},
		{"query=kubelet&pattern=^t", 200, "two\nthree"},
		{"query=kubelet&pattern=^t&tailLines=1", 200, "three"},
		{"query=kubelet&pattern=<", 200, always + "<--unit=kubelet>\n"}, // the pattern isn't journalctl's
		{"query=kubelet&tailLines=0", 200, ""},
		{"query=nginx", 200, "get\npost\nget again\n"},
		{"query=nginx&query=cron&pattern=get|daily", 200, "get\nget again\ndaily\n"},
		{"query=nginx&tailLines=1", 200, "get again\n"},
		{"query=/nginx/nginx.log&tailLines=2", 200, "post\nget again\n"},
		{"query=/inside", 200, "get\npost\nget again\n"},
		{"query=/long&tailLines=1", 200, "z"},
		{"query=/long&pattern=^a$", 200, "a\n"},
		{"query=/nginx/../cron.log", 200, "hourly\ndaily\n"},
		{"query=none", 404, "no logs of service \"none\""},
		{"query=broken", 500, "the journal is damaged"},
		{"query=/none", 404, ""},
		{"query=/nginx", 500, "directory"},
		{"query=/out", 403, ""},
		{"query=/up/hidden", 403, ""},
		{"query=/pipe", 403, ""},
		{"query=/../../etc/passwd", 404, ""},
		{"query=", 400, "neither"},
		{"query=kubelet&query=/cron.log", 400, "both"},
		{"query=/a&query=/b", 400, "more than one file"},
		{"query=--file=x", 400, ""},
		{"query=-u", 400, ""},
		{"query=kube*", 400, ""},
		{"query=a b", 400, ""},
		{"query=a;reboot", 400, ""},
		{"query=$(reboot)", 400, ""},
		{"query=a\nb", 400, ""},
		{"query=..", 400, ""},
		{"query=a..b", 400, ""},
		{"query=" + strings.Repeat("a", 256), 400, ""},
		{"query=kubelet&boot=1", 400, "boot"},
		{"query=kubelet&boot=0 --all", 400, "boot"},
		{"query=kubelet&tailLines=-1", 400, "tailLines"},
		{"query=kubelet&tailLines=100001", 400, "tailLines"},
		{"query=kubelet&sinceTime=yesterday", 400, "sinceTime"},
		{"query=kubelet&sinceTime=2026-01-02T03:04:05Z&untilTime=2026-01-02T03:04:05Z", 400, "before"},
		{"query=kubelet&pattern=(?=a)", 400, "RE2"},
		{"query=kubelet&pattern=((a{100}){100}){100}", 400, "pattern"},
		{"query=kubelet&pattern=" + strings.Repeat("a", 1025), 400, "pattern"},
		{"query=/cron.log&boot=0", 400, "file"},
	} {
		q := url.Values{}
		for part := range strings.SplitSeq(c.query, "&") {
			name, value, _ := strings.Cut(part, "=")
			q.Add(name, value)
		}
		code, text := ask(t, "GET", "https://"+address+"/logs/?"+q.Encode(), "")
		if code != c.code || code == 200 && text != c.text || !strings.Contains(text, c.text) || strings.Contains(text, "text of hidden") {
			t.Errorf("%.200s: %d %.500q, want %d %q", c.query, code, text, c.code, c.text)
		}
	}
	many := url.Values{}
	for i := range 17 {
		many.Add("query", fmt.Sprint("s", i))
	}
	if code, text := ask(t, "GET", "https://"+address+"/logs/?"+many.Encode(), ""); code != 400 {
		t.Errorf("many services: %d %s", code, text)
	}
}
