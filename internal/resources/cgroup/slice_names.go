package cgroup

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// suffix ends every slice's name.
const suffix = ".slice"

// slicePath is the control group of the slice whose name has these parts, from the root
// down. A slice lies in those that its name's dashes spell (systemd.slice(5)):
// kubepods, burstable are /kubepods.slice/kubepods-burstable.slice.
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

// sliceRoot are the parts of the name that a control group's path from a configuration
// stands for. Both ways to write it are taken, /a/b and /a.slice/a-b.slice. A dash
// within a part of the former is no boundary, and becomes an underscore.
func sliceRoot(group string) []string {
	if name, ok := strings.CutSuffix(path.Base(group), suffix); ok {
		return strings.FieldsFunc(name, func(r rune) bool { return r == '-' })
	}
	return strings.FieldsFunc(strings.ReplaceAll(group, "-", "_"), func(r rune) bool { return r == '/' })
}

// slicePart writes any text as one part of a name: a dash as an underscore, and what
// isn't a letter, a digit, a dot or a colon as \xNN.
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

// sliceBelow is the text that slicePart made the last part of the slice's name of, if the
// parts before it are these.
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
