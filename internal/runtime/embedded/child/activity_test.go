package child

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/process"
)

func TestActivity(t *testing.T) {
	own := &Process{pid: os.Getpid()}
	before := own.Activity()
	for deadline := time.Now().Add(30 * time.Second); own.Activity().CPU < before.CPU+5*process.Tick; {
		if time.Now().After(deadline) {
			t.Fatalf("a process that works has used %s, and %s before", own.Activity().CPU, before.CPU)
		}
	}
	p, _, _ := start(t, "obey")
	if age := p.Age(); age < 0 || age > time.Minute {
		t.Errorf("a process that was just started is %s old", age)
	}
	if err := p.signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := p.Activity()
	for range 20 {
		if a := p.Activity(); a.Blocked || a.CPU > stopped.CPU+process.Tick {
			t.Fatalf("a process that was stopped: %+v, before %+v", a, stopped)
		}
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Reap()
	if a := p.Activity(); a != (Activity{}) {
		t.Errorf("one that has ended: %+v", a)
	}
}
