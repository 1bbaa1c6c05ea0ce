// Package report reads from /proc what a process costs, and prints measurements as tables a
// person can read.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Table is a heading, columns and rows.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// WriteTo writes the table with aligned columns: the first to the left, numbers
// to the right.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	widths := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		for i, cell := range row[:min(len(row), len(widths))] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", t.Title)
	line := func(row []string) {
		var text strings.Builder
		for i, width := range widths {
			cell := ""
			if i < len(row) {
				cell = row[i]
			}
			gap := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
			if i == 0 {
				text.WriteString("  " + cell + gap)
			} else {
				text.WriteString("  " + gap + cell)
			}
		}
		b.WriteString(strings.TrimRight(text.String(), " ") + "\n")
	}
	line(t.Columns)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	line(rule)
	for _, row := range t.Rows {
		line(row)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// Median is the middle of values, or the mean of the two in the middle; 0 of none.
func Median(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Duration writes seconds from one second on, milliseconds below.
func Duration(d time.Duration) string {
	if d >= time.Second {
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}

// Ratio writes a/b.
func Ratio(a, b time.Duration) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", float64(a)/float64(b))
}

// MiB writes bytes as mebibytes.
func MiB(bytes int64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// Millicores writes the CPU time used in a while as thousandths of a core.
func Millicores(used, while time.Duration) string {
	if while <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f mcores", 1000*float64(used)/float64(while))
}

// Result says whether a goal was met.
func Result(met bool) string {
	if met {
		return "ok"
	}
	return "MISSED"
}
