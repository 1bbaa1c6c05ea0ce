package layout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

func TestNames(t *testing.T) {
	const stamp = "20260102-030405"
	for name, want := range map[string]layout.Name{
		"0.log":                     {},
		"12.log":                    {Attempt: 12},
		"3.log.20260102-030405":     {Attempt: 3, Stamp: stamp},
		"3.log.20260102-030405.gz":  {Attempt: 3, Stamp: stamp, Compressed: true},
		"3.log.20260102-030405.tmp": {Attempt: 3, Stamp: stamp, Temp: true},
		"2147483646.log":            {Attempt: 2147483646},
	} {
		got, ok := layout.ParseName(name)
		if !ok || got != want || got.String() != name {
			t.Errorf("%s: %+v (%s), %v; want %+v", name, got, got, ok, want)
		}
	}
	for _, name := range []string{"", "log", "0.logs", "0.log.", "0.log.1", "0.log.20260102", "0.log.20261302-030405", "0.log.20260102-030405.gz.tmp",
		"0.log.20260102-030405.bz2", "0.log.gz", "x.log", "-1.log", "2147483647.log",
		"00.log", "007.log.20260102-030405", "0.log.20260102-030405.5", "0.log.20260102-030405,5.gz"} {
		if got, ok := layout.ParseName(name); ok {
			t.Errorf("%q is taken for %+v", name, got)
		}
	}
}

func TestNamesSortByAge(t *testing.T) {
	want := []string{"0.log.20260102-030405", "0.log.20260102-030405.tmp", "0.log.20260102-030405.gz", "0.log.20260102-030406.gz", "0.log"}
	var names []layout.Name
	for _, i := range []int{4, 2, 0, 3, 1} {
		n, _ := layout.ParseName(want[i])
		names = append(names, n)
	}
	slices.SortFunc(names, layout.Name.Compare)
	for i, n := range names {
		if n.String() != want[i] {
			t.Errorf("%d is %s, want %s", i, n, want[i])
		}
	}
}

func TestNextStamp(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 999, time.Local)
	for newest, want := range map[string]string{
		"":                "20260102-030405",
		"20260102-030404": "20260102-030405",
		"20260102-030405": "20260102-030406", // the same second
		"20260102-235959": "20260103-000000", // the clock was set back
	} {
		if got, err := layout.NextStamp(now, newest); err != nil || got != want {
			t.Errorf("after %q: %q, %v, want %q", newest, got, err, want)
		}
	}
	for _, newest := range []string{"99991231-235959", "99999999-999999"} {
		if got, err := layout.NextStamp(now, newest); err == nil {
			t.Errorf("after %q: %q, want an error", newest, got)
		}
	}
}
