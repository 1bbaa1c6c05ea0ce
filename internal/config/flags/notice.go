package flags

import (
	"maps"
	"net/url"
	"slices"

	"github.com/spf13/pflag"
)

// Notice is a message about a flag that was given.
type Notice struct {
	// Flag is the flag's name, without dashes.
	Flag string
	// Why is the message after the flag's name: a clause in lower case, without a full stop.
	Why string
}

// NotActedOn lists the flags that have no effect in this build and a value other than the default, sorted by name. It
// omits flags that set a field of the configuration file: fields.NotActedOn lists those fields.
func (s *Set) NotActedOn() []Notice {
	var out []Notice
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		f := s.flags.Lookup(name)
		if why := s.rows[name].why; why != "" && f.Changed && f.Value.String() != f.DefValue {
			out = append(out, Notice{name, why})
		}
	}
	return out
}

// Deprecated lists the deprecated flags that were given, sorted by name, with their replacements.
func (s *Set) Deprecated() []Notice {
	var out []Notice
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		if r := s.rows[name]; r.deprecated && s.Given(name) {
			out = append(out, Notice{name, r.replacement()})
		}
	}
	return out
}

// Shown is a flag and its value for display: secrets are masked.
type Shown struct{ Name, Value string }

// Shown lists all flags, sorted by name. Flags that weren't given have their default for a standalone node or for a
// node of a cluster.
func (s *Set) Shown(standalone bool) []Shown {
	out := make([]Shown, 0, len(s.rows))
	s.flags.VisitAll(func(f *pflag.Flag) { // sorted by name
		value := f.Value.String()
		switch alone := s.rows[f.Name].alone; {
		case s.says(f.Name):
		case standalone && alone != "":
			value = alone
		default:
			value = f.DefValue
		}
		if mask := s.rows[f.Name].masked; mask != nil {
			value = mask(value)
		}
		out = append(out, Shown{f.Name, value})
	})
	return out
}

// masked replaces a secret.
const masked = "<masked>"

func maskAll(text string) string {
	if text == "" {
		return ""
	}
	return masked
}

// maskURL keeps scheme, host and path: passwords and tokens are in the other parts.
func maskURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return ""
	case err != nil || u.Host == "" || u.Opaque != "":
		return masked
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += masked + "@"
	}
	shown += u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		shown += "?" + masked
	}
	return shown
}
