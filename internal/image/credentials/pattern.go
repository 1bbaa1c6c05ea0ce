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

// place is where an image is, or may be: the parts of a host between dots, a port
// and a path. A port is empty if none is given, a path begins with a slash or is empty.
type place struct {
	host       []string
	port, path string
}

// Pattern says which images a credential is for, as the keys of docker
// configuration files and matchImages of credential providers do: a host in which
// each part between dots may have globs, a port, and the beginning of a path.
//
// The rules are those of k8s.io/kubelet/config/v1 CredentialProvider.MatchImages.
// What they leave open, a pattern without a port and an image with one, is no
// match: another port is another server, and must not be shown a password that
// isn't for it.
type Pattern struct {
	text  string
	place place
}

// ParsePattern reads "registry.io", "*.registry.io:5000/path" and the like. A
// scheme (http, https) and what docker adds for the API ("/v1/", "/v2/") are left out.
// The errors don't repeat the text: what is no pattern might be anything.
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
		hostport = "docker.io" // two names of one registry; image names have this one
	}
	host, port, err := splitHost(hostport)
	if err != nil {
		return Pattern{}, err
	}
	return Pattern{text: hostport + route, place: place{host: host, port: port, path: route}}, nil
}

// withoutAPI takes docker's API version off the front of a path. Where the key is
// no URL, "registry.io/v1/project" is taken for what it says: a repository.
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

// splitHost takes "host:port" apart; the port may be missing.
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

// isLetter reports ASCII letters and digits.
func isLetter(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// String is the pattern without scheme and API version.
func (p Pattern) String() string { return p.text }

// Matches reports whether the pattern is for this image.
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

// matchPart matches one part of a host. A part has no slash, and * is the only
// character in it that path.Match takes for more than itself, but for the brackets
// of IPv6 addresses, which have no globs.
func matchPart(pattern, part string) bool {
	if !strings.Contains(pattern, "*") {
		return pattern == part
	}
	ok, err := path.Match(pattern, part)
	return ok && err == nil
}

// Entry is one line of who may log in where.
type Entry struct {
	Pattern    Pattern
	Credential Credential
}

// Match returns the credentials of the entries for this image, in the order in
// which they are to be tried. That is the reverse order of their patterns, as
// documented for CredentialProviderResponse.Auth: of two that begin alike the longer
// one is first, and * comes last. Those of equal patterns stay as they are, and the
// same secret isn't tried twice.
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
