package cgroup

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// suffix is the suffix of every slice's name.
const suffix = ".slice"

// slicePath returns the cgroup of the slice whose name has these parts, from the root down. The dashes in a slice's
// name determine its parents (systemd.slice(5)): kubepods, burstable becomes
// /kubepods.slice/kubepods-burstable.slice.
func slicePath(parts []string) string {
	var whole, name strings.Builder
	for i, part := range parts {
		if i > 0 {
			name.WriteByte('-')
		}
		name.WriteString(part)
		whole.WriteString("/" + name.String() + suffix)
	}
	if len(parts) == 0 {
		return "/"
	}
	return whole.String()
}

// sliceRoot returns the parts of the slice name for a cgroup path from the configuration. It accepts both /a/b and
// /a.slice/a-b.slice. In the former, a dash within a part isn't a separator, and becomes an underscore.
func sliceRoot(group string) []string {
	if name, ok := strings.CutSuffix(path.Base(group), suffix); ok {
		return strings.FieldsFunc(name, func(r rune) bool { return r == '-' })
	}
	return strings.FieldsFunc(strings.ReplaceAll(group, "-", "_"), func(r rune) bool { return r == '/' })
}

// slicePart escapes text as one part of a name: a dash as an underscore, and other bytes than letters, digits, dots
// and colons as \xNN.
func slicePart(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '-':
			b.WriteByte('_')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == ':':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// sliceBelow reverses slicePart for the last part of the slice's name, if the parts before it are these.
func sliceBelow(parts []string, name string) (text string, ok bool) {
	part, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return "", false
	}
	part, ok = strings.CutPrefix(part, strings.Join(parts, "-")+"-")
	if !ok || strings.Contains(part, "-") {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		switch c := part[i]; {
		case c == '_':
			b.WriteByte('-')
		case c == '\\':
			if i+4 > len(part) || part[i+1] != 'x' {
				return "", false
			}
			n, err := strconv.ParseUint(part[i+2:i+4], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}
