package process_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

func TestReadStat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stat")
	const rest = " 7 1 1 0 -1 4194560 1 2 3 4 150 25 5 6 20 0 12 0 4711 1 1\n"
	for text, want := range map[string]process.Stat{
		"9 (containerd) S" + rest:          {State: 'S', Parent: 7, CPU: 1750 * time.Millisecond, Start: 4711},
		"9 (a) Z 1 (b) D" + rest:           {State: 'D', Parent: 7, CPU: 1750 * time.Millisecond, Start: 4711},
		"9 (x\n) S" + rest:                 {State: 'S', Parent: 7, CPU: 1750 * time.Millisecond, Start: 4711},
		"9 (cut off) S 7 1 1":              {},
		"9 (no number) S nothing 1" + rest: {},
		"":                                 {},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := process.ReadStat(path); ok != (want != process.Stat{}) || ok && got != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	if own, ok := process.ReadStat("/proc/self/stat"); !ok || own.Parent != os.Getppid() || own.Start == 0 {
		t.Errorf("this process: %+v, %v", own, ok)
	}
	if _, ok := process.ReadStat(path + "-gone"); ok {
		t.Error("a process that has ended has none")
	}
}
