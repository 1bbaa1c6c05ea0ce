package capacity_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

func TestReadTasks(t *testing.T) {
	const idle = "0.00 0.01 0.05 2/345 6789\n"
	for name, c := range map[string]struct {
		load, pidMax, threadsMax string
		want                     capacity.Tasks // none for an error
	}{
		"PIDs are fewer":       {idle, "32768\n", "190000\n", capacity.Tasks{Count: 345, Max: 32768}},
		"threads are fewer":    {idle, "4194304\n", "15000\n", capacity.Tasks{Count: 345, Max: 15000}},
		"no pid_max":           {idle, "", "15000\n", capacity.Tasks{Count: 345, Max: 15000}},
		"no maximum":           {idle, "", "", capacity.Tasks{Count: 345}},
		"bad maximums":         {idle, "many\n", "-1\n", capacity.Tasks{Count: 345}},
		"too large a maximum":  {idle, "99999999999\n", "15000\n", capacity.Tasks{Count: 345, Max: 15000}},
		"more than the most":   {"9.00 9.00 9.00 2/40000 6789\n", "32768\n", "190000\n", capacity.Tasks{Count: 40000, Max: 32768}},
		"no load":              {"", "32768\n", "190000\n", capacity.Tasks{}},
		"too few fields":       {"0.00 0.01 2/345\n", "32768\n", "190000\n", capacity.Tasks{}},
		"no slash":             {"0.00 0.01 0.05 345 6789\n", "32768\n", "190000\n", capacity.Tasks{}},
		"no number":            {"0.00 0.01 0.05 2/all 6789\n", "32768\n", "190000\n", capacity.Tasks{}},
		"a negative number":    {"0.00 0.01 0.05 2/-345 6789\n", "32768\n", "190000\n", capacity.Tasks{}},
		"beyond all numbers":   {"0.00 0.01 0.05 2/99999999999999999999 6789\n", "32768\n", "190000\n", capacity.Tasks{}},
		"more lines are there": {idle + idle, "32768\n10\n", "190000\n", capacity.Tasks{Count: 345, Max: 190000}},
	} {
		files := map[string]string{}
		for file, text := range map[string]string{"proc/loadavg": c.load, "proc/sys/kernel/pid_max": c.pidMax,
			"proc/sys/kernel/threads-max": c.threadsMax} {
			if text != "" {
				files[file] = text
			}
		}
		got, err := capacity.ReadTasks(tree(t, files))
		if got != c.want || (err != nil) != (c.want == capacity.Tasks{}) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	got, err := capacity.ReadTasks("/")
	if err != nil || got.Count < 1 || got.Max < got.Count {
		t.Errorf("this host: %+v, %v", got, err)
	}
}

func BenchmarkReadTasks(b *testing.B) {
	for b.Loop() {
		if _, err := capacity.ReadTasks("/"); err != nil {
			b.Fatal(err)
		}
	}
}
