package exec

import (
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	ms := func(n ...time.Duration) (all []time.Duration) {
		for _, d := range n {
			all = append(all, d*time.Millisecond)
		}
		return all
	}
	rows := table([]way{{name: "floor", took: ms(90, 100, 200)}, {name: "a", took: ms(110)}, {name: "b", took: ms(111)}, {name: "c", more: true, took: ms(150)}}).Rows
	for i, want := range []string{"floor|100 ms", "a|110 ms|1.10x|≤ 1.10x|ok", "b|111 ms|1.11x|≤ 1.10x|MISSED", "c|150 ms|1.50x"} {
		if got := strings.Join(rows[i], "|"); got != want {
			t.Errorf("row is %s, want %s", got, want)
		}
	}
}
