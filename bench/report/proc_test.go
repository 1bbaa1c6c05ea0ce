package report_test

import (
	"os"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

func TestCPUTime(t *testing.T) {
	before, err := report.CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); time.Since(began) < 200*time.Millisecond; {
	}
	after, err := report.CPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if used := after - before; used < 20*time.Millisecond || used > 10*time.Second {
		t.Errorf("200 ms of work cost %s", used)
	}
	if twice, err := report.CPUTime(os.Getpid(), os.Getpid()); err != nil || twice < 2*after {
		t.Errorf("twice this process has used %s, once %s: %v", twice, after, err)
	}
	if _, err := report.CPUTime(1 << 23); err == nil { // the kernel has fewer
		t.Error("a process that isn't there has used CPU time")
	}
}

func TestMemory(t *testing.T) {
	m, err := report.MemoryOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if m.PSS <= 0 || m.RSS < m.PSS || m.RSS > 1<<40 {
		t.Errorf("this process has RSS %d and PSS %d", m.RSS, m.PSS)
	}
}
