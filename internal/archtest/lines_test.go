package archtest

import (
	"bufio"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is how long a line of Go may be; a tab counts as tabColumns.
const (
	maxColumns = 120
	tabColumns = 4
)

// longLines are how many lines of a wing's product code, and of the commands, may be longer. The numbers may only fall: after
// an edit that wraps some, lower the number. A wing that isn't named has none.
var longLines = map[string]int{
	"kit": 3, "pod": 1, "host": 1, "config": 50, "report": 1, "cluster": 1, "runtime": 3, "volume": 2,
	"image": 1, "resources": 1, "worker": 2, "agent": 2, "cmd": 3,
}

// TestLineLength: a line fits on a screen beside another.
func TestLineLength(t *testing.T) {
	counts := map[string]int{}
	eachFile(t, func(dir, name string, _ *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || isTestPackage(dir) || !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
			return
		}
		f, err := os.Open(filepath.Join("../..", dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			if line := lines.Text(); utf8.RuneCountInString(line)+(tabColumns-1)*strings.Count(line, "\t") > maxColumns {
				counts[wingOf(dir)]++
				if testing.Verbose() {
					t.Logf("%s/%s:%d", dir, name, n)
				}
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	})
	for _, wing := range slices.Sorted(maps.Keys(counts)) {
		if counts[wing] > longLines[wing] {
			t.Errorf("%s has %d lines of more than %d columns, at most %d are allowed: go test -v -run TestLineLength shows them", wing, counts[wing], maxColumns, longLines[wing])
		}
	}
	for wing, limit := range longLines {
		if counts[wing] < limit {
			t.Logf("%s has %d lines of more than %d columns: lower the limit of %d", wing, counts[wing], maxColumns, limit)
		}
	}
}
