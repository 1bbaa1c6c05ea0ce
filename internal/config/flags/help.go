package flags

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// Group is a section of flags in the help.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// Groups returns all flags, each in one group, in the order of help.
func (s *Set) Groups() []Group {
	groups := make([]Group, 0, len(s.tables))
	for _, t := range s.tables {
		fs := pflag.NewFlagSet(t.title, pflag.ContinueOnError)
		fs.SortFlags = t.sorted
		for _, r := range t.rows {
			if f := s.flags.Lookup(r.name); f != nil {
				fs.AddFlag(f)
			}
		}
		groups = append(groups, Group{t.title, fs})
	}
	return groups
}

// helpColumn is where the right column of the help begins. helpNarrowest is the minimum width of that column, even if
// lines get wider than the terminal. Both are in characters.
const (
	helpColumn    = 36
	helpNarrowest = 24
)

// PrintHelp writes groups of flags in two columns, with lines of at most width characters if that is wide enough.
func PrintHelp(w io.Writer, groups []Group, width int) error {
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(g.Title + ":\n")
		g.Flags.VisitAll(func(f *pflag.Flag) { writeFlag(&b, f, max(width-helpColumn, helpNarrowest)) })
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeFlag(b *strings.Builder, f *pflag.Flag, width int) {
	argument, text := pflag.UnquoteUsage(f)
	left := "      --" + f.Name
	if f.Shorthand != "" {
		left = "  -" + f.Shorthand + ", --" + f.Name
	}
	switch {
	case f.NoOptDefVal != "" && f.Value.Type() != "bool":
		left += "[=" + argument + "]"
	case argument != "":
		left += " " + argument
	}
	text += DefaultText(f)
	lines := wrap(text, width)
	if utf8.RuneCountInString(left) > helpColumn-2 {
		b.WriteString(left + "\n")
		left = ""
	}
	for _, line := range lines {
		fmt.Fprintf(b, "%-*s%s\n", helpColumn, left, line)
		left = ""
	}
}

// DefaultText formats the default of a flag in a cluster and, if that differs, the default without a kubeconfig. The
// help prints it after the flag's usage. It is empty for zero values.
func DefaultText(f *pflag.Flag) string {
	if alone := f.Annotations[standaloneDefault]; len(alone) > 0 {
		return fmt.Sprintf(" (default %s; without --kubeconfig %s)", breakable(f.DefValue), breakable(alone[0]))
	}
	if zeroDefault(f.DefValue) {
		return ""
	}
	return fmt.Sprintf(" (default %s)", breakable(f.DefValue))
}

// breakable adds spaces to a long default, so that lines can be broken there.
func breakable(def string) string {
	if len(def) > helpNarrowest*2 {
		return strings.ReplaceAll(def, ",", ", ")
	}
	return def
}

// zeroDefault reports whether a default is a zero value, which the help omits.
func zeroDefault(text string) bool {
	switch text {
	case "", "0", "0s", "false", "[]":
		return true
	}
	return false
}

// wrap breaks text between words into lines of at most width characters; a longer word gets its own line.
func wrap(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
