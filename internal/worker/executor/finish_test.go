package executor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A start under way gets time to finish, but not for ever.
func TestFinishing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, stop := context.WithCancel(t.Context())
		own, release := finishing(asked)
		defer release()
		stop()
		begin := time.Now()
		time.Sleep(breakOffAfter - time.Millisecond)
		if own.Err() != nil {
			t.Fatalf("broken off after %s", time.Since(begin))
		}
		<-own.Done()
		if took := time.Since(begin); took != breakOffAfter {
			t.Errorf("broken off after %s, want %s", took, breakOffAfter)
		}
	})
}

func TestFinishingLetsGo(t *testing.T) {
	own, release := finishing(t.Context())
	if own.Err() != nil {
		t.Fatal("ended before its time")
	}
	release()
	if own.Err() == nil {
		t.Error("goes on after it was let go of")
	}
}
