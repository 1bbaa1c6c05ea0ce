package dns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile is the maximum size of a resolver configuration in bytes: a search list and servers take a few thousand.
const maxFile = 32 << 10

// CheckFile returns an error if the node's resolver configuration can't be read (KubeletConfiguration's
// resolvConf).
func CheckFile(path string) error {
	_, err := read(path)
	return err
}

// read reads a resolver configuration. It follows symbolic links, because /etc/resolv.conf often is one.
func read(path string) (resolver, error) {
	// Without O_NONBLOCK, opening a FIFO would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return resolver{}, fmt.Errorf(
			"the node's resolver configuration %s doesn't exist: make it, or set resolvConf to the file that the "+
				"node has", path)
	}
	if err != nil {
		return resolver{}, fmt.Errorf("the node's resolver configuration (resolvConf): %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return resolver{}, fmt.Errorf("the node's resolver configuration (resolvConf): %w", err)
	} else if !info.Mode().IsRegular() && path != os.DevNull {
		return resolver{}, fmt.Errorf("the node's resolver configuration %s is not a file: set resolvConf to one", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return resolver{}, fmt.Errorf("the node's resolver configuration (resolvConf): %w", err)
	}
	if len(text) > maxFile {
		return resolver{}, fmt.Errorf(
			"the node's resolver configuration %s is longer than %d bytes, so it can't be meant: set resolvConf to "+
				"another file", path, maxFile)
	}
	return parse(string(text)), nil
}

// parse parses a resolver configuration according to resolv.conf(5): the last search or domain line counts. It
// omits entries that resolvers ignore: servers that aren't addresses, and words that can't be domains or options.
func parse(text string) resolver {
	var r resolver
	for line := range strings.Lines(text) {
		keyword, values := split(line)
		if len(values) == 0 {
			continue
		}
		switch keyword {
		case "nameserver":
			if _, err := netip.ParseAddr(values[0]); err == nil {
				r.servers = append(r.servers, values[0])
			}
		case "domain":
			r.searches = domains(values[:1])
		case "search":
			r.searches = domains(values)
		case "options":
			for _, o := range values {
				r.options = setOption(r.options, o)
			}
		}
	}
	r.servers = unique(r.servers)
	return r
}

// split returns a line's keyword and the following words, up to a comment. It omits words with characters other
// than visible ASCII.
func split(line string) (keyword string, values []string) {
	for i, w := range strings.Fields(line) {
		switch {
		case w[0] == '#' || w[0] == ';':
			return keyword, values
		case i == 0:
			keyword = w
		case !strings.ContainsFunc(w, func(r rune) bool { return r <= ' ' || r > '~' }):
			values = append(values, w)
		}
	}
	return keyword, values
}

// domains removes trailing dots, so that a domain with and without the dot isn't listed twice. The root domain
// remains a dot.
func domains(list []string) []string {
	out := make([]string, 0, len(list))
	for _, d := range list {
		if d != "." {
			d = strings.TrimRight(d, ".")
		}
		if d != "" {
			out = append(out, d)
		}
	}
	return unique(out)
}
