package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

func TestTable(t *testing.T) {
	table := report.Table{Title: "Pods", Columns: []string{"pods", "floor", "goal"}}
	table.Add("20", report.Duration(2600*time.Millisecond), "≤ 1.15x")
	table.Add("a longer name", report.Duration(50*time.Millisecond))
	var got strings.Builder
	if _, err := table.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	want := `
Pods

  pods            floor     goal
  -------------  ------  -------
  20             2.60 s  ≤ 1.15x
  a longer name   50 ms
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		report.Duration(report.Median([]time.Duration{3, 1, 2000000})): "0 ms",
		report.Duration(report.Median([]time.Duration{2e9, 1e9})):      "1.50 s",
		report.Duration(report.Median(nil)):                            "0 ms",
		report.Ratio(3*time.Second, 2*time.Second):                     "1.50x",
		report.Ratio(1, 0):   "-",
		report.MiB(45 << 20): "45.0 MiB",
		report.Millicores(90*time.Millisecond, 30*time.Second): "3.0 mcores",
		report.Result(true) + report.Result(false):             "okMISSED",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
