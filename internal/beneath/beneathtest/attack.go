// Package beneathtest attacks code that opens what pods can write to: it swaps folders for
// links, over and over, while that code runs, and sees that nothing outside is reached.
package beneathtest

import (
	"errors"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/beneath"
)

var duration = flag.Duration("attack.duration", 2*time.Second, "how long each attack lasts")

// grace is how much longer an attack may last until each outcome has come up: how
// soon that is, is luck.
const grace = time.Minute

// Attack is one.
type Attack struct {
	// Swaps are done over and over, each by a goroutine of its own, half of which have a thread
	// to themselves. Their errors don't count: what they are to swap may be gone for a moment.
	Swaps []func() error
	// Try does what is attacked, over and over. It fails the test itself when it got what it mustn't.
	Try func() error
	// Refused reports whether an error says that the attack was noticed. Nil is: it is
	// beneath.ErrEscapes. Other errors come from what vanished under Try.
	Refused func(error) bool
	// Canary is what nobody may touch.
	Canary *Canary
}

// Run attacks for as long as the flag says, and tells how it went. It fails the test when the
// canary was touched, when nothing was swapped, and unless some tries went well and some were refused.
func (a Attack) Run(t *testing.T) {
	t.Helper()
	if a.Refused == nil {
		a.Refused = func(err error) bool { return errors.Is(err, beneath.ErrEscapes) }
	}
	var (
		wg    sync.WaitGroup
		stop  atomic.Bool
		swaps = make([]atomic.Int64, len(a.Swaps))
	)
	for i, swap := range a.Swaps {
		wg.Go(func() {
			if i%2 == 1 {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			for !stop.Load() {
				if swap() == nil {
					swaps[i].Add(1)
				}
				// Without it, those that attack might be all that runs.
				runtime.Gosched()
			}
		})
	}
	end := func() { stop.Store(true); wg.Wait() }
	defer end() // also when Try ends the test
	tries, passed, refused := a.loop(t)
	end()
	a.Canary.Check(t)
	var all int64
	for i := range swaps {
		n := swaps[i].Load()
		all += n
		if n == 0 {
			t.Errorf("attacker %d never swapped anything", i)
		}
	}
	t.Logf("%d tries: %d went well, %d were refused, %d met with something missing; %d swaps", tries, passed, refused, tries-passed-refused, all)
	if passed == 0 || refused == 0 {
		t.Error("this shows nothing: some tries have to go well, and some have to be refused")
	}
}

func (a Attack) loop(t *testing.T) (tries, passed, refused int) {
	start := time.Now()
	for !t.Failed() {
		took := time.Since(start)
		if took >= *duration && (passed > 0 && refused > 0 || took >= *duration+grace) {
			break
		}
		tries++
		switch err := a.Try(); {
		case err == nil:
			passed++
		case a.Refused(err):
			refused++
		}
		a.Canary.Check(t)
	}
	return tries, passed, refused
}

// Exchange swaps what two paths are, at once.
func Exchange(a, b string) func() error {
	return func() error { return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE) }
}

// BindOver mounts a folder over another and takes it off again, then rests: mounting keeps
// everybody else waiting, too.
func BindOver(source, target string) func() error {
	return func() error {
		defer time.Sleep(5 * time.Millisecond)
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		// At the place it was mounted at there may be something else by now: then it stays, and is on top.
		return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
}
