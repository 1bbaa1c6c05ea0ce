package pressure

import (
	"os"
	"path/filepath"
	"testing"
)

func TestThrashing(t *testing.T) {
	const thrashes = "99% of 4.0 GiB of swap space are used, and for 12% of the last 10 s all tasks waited for memory"
	swap := func(free string) string {
		return "MemTotal: 8388608 kB\nMemFree: 1000 kB\nSwapTotal: 4194304 kB\nSwapFree: " + free + " kB\n"
	}
	stalls := func(some, full string) string {
		return "some avg10=" + some + " avg60=0.00 avg300=0.00 total=5\nfull avg10=" + full + " avg60=0.00 avg300=0.00 total=5\n"
	}
	for name, c := range map[string]struct{ meminfo, stalls, want string }{
		"it does":          {swap("41943"), stalls("50.00", "12.34"), thrashes},
		"it goes on":       {swap("41943"), stalls("50.00", "9.99"), ""},
		"there is swap":    {swap("419431"), stalls("50.00", "12.34"), ""},
		"without swap":     {"MemTotal: 8388608 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", stalls("50.00", "12.34"), ""},
		"not measured":     {swap("41943"), "", ""},
		"no memory at all": {"", stalls("50.00", "12.34"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(filepath.Join(root, "proc/pressure"), 0o755); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{"proc/meminfo": c.meminfo, "proc/pressure/memory": c.stalls} {
				if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := Thrashing(root); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
