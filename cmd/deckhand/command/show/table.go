// Package show prints pods, events, images and the node: as tables, as JSON or YAML, and as they change. It also
// finds pods and containers by the names that users type.
package show

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// leastCut is the minimum width of a last column that is cut.
const leastCut = 20

// gap separates columns.
const gap = "   "

// Table writes rows in columns that never get narrower, so that rows stay aligned with earlier ones. The zero value
// is ready to use.
type Table struct {
	// MaxWidth cuts the last column so that lines fit, if at least leastCut characters of it are left. Otherwise
	// lines aren't cut, and the terminal wraps them: no essential information is lost. 0 means no limit.
	MaxWidth int
	widths   []int
}

// Write writes rows, without trailing blanks. It replaces line breaks and terminal control sequences in cells,
// because cells may have text of containers.
func (t *Table) Write(w io.Writer, rows ...[]string) error {
	var out bytes.Buffer
	for _, line := range t.Lines(rows...) {
		out.WriteString(line)
		out.WriteByte('\n')
	}
	_, err := w.Write(out.Bytes())
	return err
}

// Lines returns the lines that Write writes.
func (t *Table) Lines(rows ...[]string) []string {
	for _, row := range rows {
		for i, cell := range row {
			row[i] = terminal.Line(cell)
			if strings.HasPrefix(cell, "  ") {
				row[i] = "  " + row[i] // an indented name
			}
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			// The last column needs no padding.
			if i < len(row)-1 {
				t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
			}
		}
	}
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = t.line(row)
		if last := row[len(row)-1]; utf8.RuneCountInString(lines[i])-utf8.RuneCountInString(
			last)+leastCut <= t.MaxWidth {
			lines[i] = CutLine(lines[i], t.MaxWidth)
		}
	}
	return lines
}

func (t *Table) line(row []string) string {
	var line strings.Builder
	for i, cell := range row {
		line.WriteString(cell)
		if i < len(row)-1 {
			line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)))
			line.WriteString(gap)
		}
	}
	return strings.TrimRight(line.String(), " ")
}

// CutMiddle shortens a text to width characters by omitting words in its middle: an error begins with the failed
// operation, and ends with the reason.
func CutMiddle(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	first := width / 3
	before, after := string(runes[:first]), string(runes[len(runes)-(width-first-3):])
	if i := strings.LastIndexByte(before, ' '); i > 0 {
		before = before[:i]
	}
	if _, words, ok := strings.Cut(after, " "); ok {
		after = words
	}
	return strings.TrimSpace(before) + " … " + strings.TrimSpace(after)
}

// CutLine shortens a line to width characters with an ellipsis, unless width is 0.
func CutLine(line string, width int) string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return line
	}
	runes := []rune(line)
	return strings.TrimRight(string(runes[:width-1]), " ") + "…"
}
