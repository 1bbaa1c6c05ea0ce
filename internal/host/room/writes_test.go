package room_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// TestWritesThatHang are reported once until none hangs, and others never.
func TestWritesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &watched{}
		w := room.NewWrites(told, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		wait := func(d time.Duration) string { time.Sleep(d); synctest.Wait(); return told.since(0) }
		quick := w.Track("/quick")
		began := time.Now().Add(4 * time.Second)
		wait(4 * time.Second)
		slow := w.Track("/slow")
		if got := wait(900 * time.Millisecond); got != "" {
			t.Errorf("after 4.9 s: %s", got)
		}
		quick()
		if path, _ := w.Hanging(); path != "" || wait(4*time.Second) != "" {
			t.Errorf("%q hangs", path)
		}
		const want = "Warning StorageFailed: The disk doesn't answer: a write of /slow hasn't returned since "
		if got := wait(100 * time.Millisecond); !strings.HasPrefix(got, want) {
			t.Errorf("after 5 s: %s", got)
		}
		later := w.Track("/later")
		if path, since := w.Hanging(); path != "/slow" || !since.Equal(began) {
			t.Errorf("%q hangs since %s", path, since)
		}
		if got := wait(time.Hour); got != "" {
			t.Errorf("of the next: %s", got)
		}
		slow()
		if path, _ := w.Hanging(); path != "/later" || wait(0) != "" {
			t.Errorf("%q hangs", path)
		}
		later()
		if path, _ := w.Hanging(); path != "" || wait(0) != "" {
			t.Errorf("%q hangs", path)
		}
		w.Track("/again")
		if got := wait(5 * time.Second); !strings.Contains(got, "/again") {
			t.Errorf("another time: %s", got)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var none *room.Writes
	none.Track("/x")()
}
