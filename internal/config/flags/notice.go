package flags

import (
	"maps"
	"net/url"
	"slices"

	"github.com/spf13/pflag"
)

// Notice is about a flag that was given.
type Notice struct {
	// Flag is its name, without dashes.
	Flag string
	// Why is a clause in lower case, without a full stop.
	Why string
}

// NotActedOn lists the flags without effect in this build that were given something
// other than their default, by name. Flags that stand for a field aren't among them: it is
// the field that has no effect then.
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

// Deprecated lists the deprecated flags that were given, by name, with what to do instead.
func (s *Set) Deprecated() []Notice {
	var out []Notice
	for _, name := range slices.Sorted(maps.Keys(s.rows)) {
		if r := s.rows[name]; r.deprecated && s.Given(name) {
			out = append(out, Notice{name, r.replacement()})
		}
	}
	return out
}

// Shown is a flag and its value, for people to see: secrets are masked.
type Shown struct{ Name, Value string }

// Shown lists all flags by name, given or not: those that weren't with the default that holds, standalone or in a
// cluster.
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

// masked stands for a secret.
const masked = "<masked>"

func maskAll(text string) string {
	if text == "" {
		return ""
	}
	return masked
}

// maskURL leaves scheme, host and path: passwords and tokens are in the rest.
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
