package command

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestSignals: signals that come together ask for one orderly stop, a later one insists.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals, stops, insisted := make(chan os.Signal, 2), 0, false
		go func() {
			AwaitSignals(signals, func() { stops++ })
			insisted = true
		}()
		signals <- syscall.SIGTERM
		signals <- syscall.SIGTERM
		synctest.Wait()
		time.Sleep(deliberate / 2)
		signals <- syscall.SIGINT
		synctest.Wait()
		if stops != 1 || insisted {
			t.Errorf("after signals that came together: %d stops, insisted: %v", stops, insisted)
		}
		time.Sleep(deliberate)
		signals <- syscall.SIGINT
		synctest.Wait()
		if stops != 1 || !insisted {
			t.Errorf("after a later signal: %d stops, insisted: %v", stops, insisted)
		}
	})
}
