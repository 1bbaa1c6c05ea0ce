package credentials

import (
	"errors"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
)

var (
	errBadScheme  = errors.New("it is an address of another kind than http and https")
	errBadPath    = errors.New("its path may have letters, digits and . _ - / only; globs (*) are for the host")
	errBadHost    = errors.New("its host isn't a name of letters, digits, - and _ between dots, with * as a glob")
	errBadAddress = errors.New("its host begins with [ but isn't an IPv6 address")
	errBadPort    = errors.New("its port isn't a number from 1 to 65535; globs (*) are for the host")
)

// place is the location of an image, or a pattern for locations: the host's labels, a port and a path. The port may be
// empty. The path is empty or starts with a slash.
type place struct {
	host       []string
	port, path string
}

// Pattern selects images that a credential is for, as the keys of Docker configuration files and matchImages of
// credential providers do: a host in which each label may have globs, a port, and a path prefix.
//
// The rules are those of k8s.io/kubelet/config/v1 CredentialProvider.MatchImages. These don't specify whether a
// pattern without a port matches an image with one. Here it doesn't: another port is another server, which must not
// receive the password.
type Pattern struct {
	text  string
	place place
}

// ParsePattern parses "registry.io", "*.registry.io:5000/path" and the like. The scheme (http, https) and Docker's
// API version ("/v1/", "/v2/") are dropped. Errors don't quote the text: an invalid pattern might be a secret.
func ParsePattern(text string) (Pattern, error) {
	rest := text
	scheme, after, isURL := strings.Cut(text, "://")
	if isURL {
		if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
			return Pattern{}, errBadScheme
		}
		rest = after
	}
	hostport, route, hasPath := strings.Cut(rest, "/")
	if hasPath {
		route = withoutAPI("/"+route, isURL)
	}
	if strings.ContainsFunc(route, func(r rune) bool { return !isLetter(r) && !strings.ContainsRune("._-/", r) }) {
		return Pattern{}, errBadPath
	}
	hostport = strings.ToLower(hostport)
	if hostport == "index.docker.io" {
		hostport = "docker.io" // two names of one registry; image names have docker.io
	}
	host, port, err := splitHost(hostport)
	if err != nil {
		return Pattern{}, err
	}
	return Pattern{text: hostport + route, place: place{host: host, port: port, path: route}}, nil
}

// withoutAPI removes Docker's API version from the start of a path. If the key isn't a URL, "/v1/project" is a
// repository and stays.
func withoutAPI(route string, isURL bool) string {
	for _, api := range []string{"/v1", "/v2"} {
		if rest, ok := strings.CutPrefix(route, api); ok && (rest == "" || rest == "/" || isURL && rest[0] == '/') {
			route = rest
			break
		}
	}
	if route == "/" {
		return ""
	}
	return route
}

// splitHost splits "host:port"; the port may be missing.
func splitHost(text string) (host []string, port string, err error) {
	var rest string
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return nil, "", errBadAddress
		}
		if _, err := netip.ParseAddr(text[1:end]); err != nil {
			return nil, "", errBadAddress
		}
		host, rest = []string{text[:end+1]}, text[end+1:]
	} else {
		name := text
		if i := strings.IndexByte(text, ':'); i >= 0 {
			name, rest = text[:i], text[i:]
		}
		host = strings.Split(name, ".")
		if slices.ContainsFunc(host, badPart) {
			return nil, "", errBadHost
		}
	}
	if rest == "" {
		return host, "", nil
	}
	port = rest[1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || rest[0] != ':' {
		return nil, "", errBadPort
	}
	return host, port, nil
}

func badPart(part string) bool {
	return part == "" || strings.ContainsFunc(part, func(r rune) bool {
		return !isLetter(r) && !strings.ContainsRune("-_*", r)
	})
}

// isLetter reports whether r is an ASCII letter or digit.
func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// String returns the pattern without scheme and API version.
func (p Pattern) String() string { return p.text }

// Matches reports whether the pattern matches the image.
func (p Pattern) Matches(i Image) bool {
	if p.place.port != i.place.port || len(p.place.host) != len(i.place.host) ||
		!strings.HasPrefix(i.place.path, p.place.path) {
		return false
	}
	for n, part := range p.place.host {
		if !matchPart(part, i.place.host[n]) {
			return false
		}
	}
	return true
}

// matchPart matches one label of a host. Labels have no slashes, so path.Match treats only * as special. The brackets
// of IPv6 addresses would be special too, but these have no globs.
func matchPart(pattern, part string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == part
	}
	ok, err := path.Match(pattern, part)
	return ok && err == nil
}

// Entry is a credential with the images that it is for.
type Entry struct {
	Pattern    Pattern
	Credential Credential
}

// Match returns the credentials of the entries for this image, in the order to try them: by pattern, in reverse
// alphabetical order, as documented for CredentialProviderResponse.Auth. If one pattern is the beginning of another,
// the longer one is first, and * comes last. Entries with equal patterns keep their order, and duplicates are removed.
func Match(entries []Entry, image Image) []Credential {
	var matching []Entry
	for _, e := range entries {
		if e.Pattern.Matches(image) {
			matching = append(matching, e)
		}
	}
	slices.SortStableFunc(matching, func(a, b Entry) int { return strings.Compare(b.Pattern.text, a.Pattern.text) })
	var list []Credential
	for _, e := range matching {
		if !slices.ContainsFunc(list, e.Credential.sameSecret) {
			list = append(list, e.Credential)
		}
	}
	return list
}
