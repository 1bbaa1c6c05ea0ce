package operations_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// work is a task that waits until it is told to end.
type work struct {
	mu    sync.Mutex
	begun []string
	most  int
	now   int
	end   chan error
}

func newWork() *work { return &work{end: make(chan error)} }

func (w *work) task(key, kind string) operations.Task {
	return operations.Task{Key: operations.Key(key), Kind: kind, Undoes: kind == "unmount", Owner: "pod", Do: func(ctx context.Context, _ *operations.Operation) error {
		w.mu.Lock()
		w.begun = append(w.begun, key+" "+kind)
		w.now++
		w.most = max(w.most, w.now)
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			w.now--
			w.mu.Unlock()
		}()
		select {
		case err := <-w.end:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
}

func (w *work) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.begun)
}

var errBad = errors.New("bad")

func TestWhoAsksForTheSameJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		ctx, giveUp := context.WithCancel(t.Context())
		first := g.Start(ctx, w.task("a", "mount"))
		giveUp() // it goes on
		if err := first.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("who stopped waiting got %v", err)
		}
		if second := g.Start(t.Context(), w.task("a", "mount")); second != first {
			t.Error("a second operation was begun")
		}
		synctest.Wait()
		w.end <- errBad
		if err := first.Wait(t.Context()); !errors.Is(err, errBad) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if third := g.Start(t.Context(), w.task("a", "mount")); third == first {
			t.Error("one that has ended was joined")
		} else {
			w.end <- nil
			<-third.Done()
		}
		if got := w.list(); len(got) != 2 {
			t.Errorf("begun: %v", got)
		}
	})
}

func TestOneAtATimeForAKeyInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		var ops []*operations.Operation
		for _, kind := range []string{"mount", "unmount", "mount"} { // the last one mustn't join the first
			ops = append(ops, g.Start(t.Context(), w.task("a", kind)))
		}
		other := g.Start(t.Context(), w.task("b", "mount"))
		synctest.Wait()
		if got := w.list(); len(got) != 2 {
			t.Fatalf("at work: %v", got)
		}
		if ops[2].First() != ops[0] {
			t.Error("the first of the line isn't the one at work")
		}
		w.end <- nil // a's or b's
		w.end <- nil
		synctest.Wait()
		if ops[2].First() != ops[1] || ops[1].First() != ops[1] {
			t.Error("the first of the line isn't the one whose turn has come")
		}
		w.end <- nil
		w.end <- nil
		for _, o := range append(ops, other) {
			<-o.Done()
		}
		got := slices.DeleteFunc(w.list(), func(s string) bool { return s == "b mount" })
		if want := []string{"a mount", "a unmount", "a mount"}; !slices.Equal(got, want) {
			t.Errorf("order: %v", got)
		}
	})
}

// goroutines counts those of operations.
func goroutines() int {
	stacks := make([]byte, 16<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "operations.(*Group).run(")
}

func TestNothingPilesUpBehindWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		hang, resume := w.task("a", "mount"), make(chan struct{})
		hang.Do = func(context.Context, *operations.Operation) error {
			<-resume
			return nil
		}
		g.Start(t.Context(), hang)
		synctest.Wait()
		for range 1000 {
			for _, kind := range []string{"part 1", "part 2", "mount"} { // as those who ask again do
				g.Start(t.Context(), w.task("a", kind))
			}
		}
		synctest.Wait()
		if ops, n := len(g.Of("pod")), goroutines(); ops != 3 || n != 3 {
			t.Errorf("asked for without end: %d operations on %d goroutines, want 3", ops, n)
		}
		for range 1000 { // it is taken down, and comes back
			for _, o := range g.Of("pod") {
				if o.Kind() != "unmount" {
					o.Cancel()
				}
			}
			g.Start(t.Context(), w.task("a", "unmount"))
			g.Start(t.Context(), w.task("a", "mount"))
		}
		synctest.Wait()
		if ops, n := len(g.Of("pod")), goroutines(); ops != 3 || n != 3 {
			t.Errorf("taken down without end: %d operations on %d goroutines, want 3", ops, n)
		}
		close(resume)
		g.Stop(t.Context())
		synctest.Wait()
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines are left", n)
		}
	})
}

// What is asked for after a teardown is never what was asked for before it, and the other way round.
func TestNobodyPassesATeardown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		asked := []string{"mount", "part", "mount", "unmount", "unmount", "part", "mount", "part", "unmount", "mount"}
		ops := map[*operations.Operation]bool{}
		for _, kind := range asked {
			ops[g.Start(t.Context(), w.task("a", kind))] = true
		}
		want := []string{"a mount", "a part", "a unmount", "a part", "a mount", "a unmount", "a mount"}
		for range want {
			w.end <- nil
		}
		for o := range ops {
			<-o.Done()
		}
		if got := w.list(); !slices.Equal(got, want) {
			t.Errorf("asked for %q, done %q", asked, got)
		}
	})
}

// Nobody is the worse for a teardown that was given up before its turn.
func TestATeardownThatWasGivenUpIsPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		mount := g.Start(t.Context(), w.task("a", "mount"))
		g.Start(t.Context(), w.task("a", "unmount")).Cancel()
		if g.Start(t.Context(), w.task("a", "mount")) != mount {
			t.Error("it wasn't joined")
		}
		w.end <- nil
		<-mount.Done()
		synctest.Wait()
		if got := w.list(); !slices.Equal(got, []string{"a mount"}) {
			t.Errorf("done: %q", got)
		}
	})
}

func TestFailuresOfWhatNobodyOwnsAreNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := operations.New(operations.Config{})
		<-g.Start(t.Context(), operations.Task{Key: "a", Kind: "sweep", Do: func(context.Context, *operations.Operation) error { return errBad }}).Done()
		if until, err := g.Failed("a", "sweep"); err != nil || !until.IsZero() {
			t.Errorf("nothing would ever forget %v (%v)", err, until)
		}
	})
}

func TestOneThatWaitsForItsTurnGivesUpAtOnceAndTheNextWaitsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		hung := g.Start(t.Context(), w.task("a", "mount"))
		queued := g.Start(t.Context(), w.task("a", "refresh"))
		queued.Cancel()
		if err := queued.Wait(t.Context()); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		next := g.Start(t.Context(), w.task("a", "refresh"))
		if next == queued {
			t.Fatal("one that was given up was joined")
		}
		synctest.Wait()
		if got := w.list(); len(got) != 1 {
			t.Fatalf("two at once: %v", got)
		}
		w.end <- nil
		<-hung.Done()
		w.end <- nil
		<-next.Done()
	})
}

func TestBackOffDoublesUpToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := operations.New(operations.Config{First: time.Second, Max: 5 * time.Second})
		fail := operations.Task{Key: "a", Kind: "mount", Owner: "pod", Do: func(context.Context, *operations.Operation) error { return errBad }}
		for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
			<-g.Start(t.Context(), fail).Done()
			until, err := g.Failed("a", "mount")
			if got := time.Until(until); got != want || !errors.Is(err, errBad) {
				t.Errorf("to wait: %v (%v), want %v", got, err, want)
			}
		}
		if until, err := g.Failed("a", "unmount"); !until.IsZero() || err != nil {
			t.Error("another kind is made to wait as well")
		}
		ok := fail
		ok.Do = func(context.Context, *operations.Operation) error { return nil }
		<-g.Start(t.Context(), ok).Done()
		if _, err := g.Failed("a", "mount"); err != nil {
			t.Errorf("after a success: %v", err)
		}
		<-g.Start(t.Context(), fail).Done()
		if until, _ := g.Failed("a", "mount"); time.Until(until) != time.Second {
			t.Errorf("the count goes on after a success: %v", time.Until(until))
		}
		g.Forget("other")
		if _, err := g.Failed("a", "mount"); err == nil {
			t.Error("what another owner has failed on is forgotten")
		}
		g.Forget("pod")
		if _, err := g.Failed("a", "mount"); err != nil {
			t.Error("it isn't forgotten")
		}
		for count := range 100 {
			if d := g.Backoff(count + 1); d <= 0 || d > 5*time.Second {
				t.Errorf("after %d failures: %v", count+1, d)
			}
		}
	})
}

func TestAnErrorMaySayWhenItIsWorthAnotherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, at := operations.New(operations.Config{}), time.Now().Add(time.Hour)
		<-g.Start(t.Context(), operations.Task{
			Key: "a", Kind: "mount", Owner: "pod", Do: func(context.Context, *operations.Operation) error { return errBad },
			Again: func(err error) time.Time {
				if errors.Is(err, errBad) {
					return at
				}
				return time.Time{}
			},
		}).Done()
		if until, _ := g.Failed("a", "mount"); !until.Equal(at) {
			t.Errorf("got %v", until)
		}
	})
}

func TestWhatIsCancelledCountsAsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		o := g.Start(t.Context(), w.task("a", "mount"))
		synctest.Wait()
		o.Cancel()
		<-o.Done()
		if _, err := g.Failed("a", "mount"); err != nil {
			t.Errorf("got %v", err)
		}
	})
}

func TestSomeWorkAtOnceAndThoseThatHangDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{Parallel: 2, Slow: time.Minute}), newWork()
		var ops []*operations.Operation
		for _, key := range []string{"a", "b", "c", "d"} {
			ops = append(ops, g.Start(t.Context(), w.task(key, "mount")))
		}
		synctest.Wait()
		if got := w.list(); len(got) != 2 {
			t.Fatalf("at work: %v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.list(); len(got) != 4 {
			t.Errorf("those that hang keep others from working: %v", got)
		}
		for range 4 {
			w.end <- nil
		}
		for _, o := range ops {
			<-o.Done()
		}
		// A place that was given up isn't given back a second time.
		w.most = 0
		for _, key := range []string{"a", "b", "c", "d"} {
			g.Start(t.Context(), w.task(key, "mount"))
		}
		synctest.Wait()
		if w.most != 2 {
			t.Errorf("%d at once", w.most)
		}
		g.Stop(t.Context())
	})
}

// An operation that waits for another program delays no other, and doesn't give its place back twice.
func TestOperationsThatWaitDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w, answer := operations.New(operations.Config{Parallel: 1, Slow: time.Minute}), newWork(), make(chan struct{})
		waiting := g.Start(t.Context(), operations.Task{Key: "a", Kind: "mount",
			Do: func(_ context.Context, o *operations.Operation) error {
				o.Waits("a driver hasn't answered")
				o.Waits("it still hasn't")
				<-answer
				return nil
			}})
		synctest.Wait()
		others := []*operations.Operation{g.Start(t.Context(), w.task("b", "mount")),
			g.Start(t.Context(), w.task("c", "mount"))}
		synctest.Wait()
		if got := w.list(); len(got) != 1 {
			t.Errorf("at work: %v", got)
		}
		if working, said := waiting.State(); !working || said != "it still hasn't" {
			t.Errorf("it says %q", said)
		}
		close(answer)
		for range others {
			w.end <- nil
		}
		for _, o := range others {
			<-o.Done()
		}
		if w.most != 1 {
			t.Errorf("%d at once", w.most)
		}
	})
}

func TestStopLogsWhatHangsAndLeavesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w, hang := operations.New(operations.Config{}), newWork(), make(chan struct{})
		hung := g.Start(t.Context(), operations.Task{Key: "nfs", Kind: "mount", Do: func(_ context.Context, o *operations.Operation) error {
			o.Say("waits for a server")
			<-hang
			return nil
		}})
		behind := g.Start(t.Context(), w.task("nfs", "unmount"))
		other := g.Start(t.Context(), w.task("a", "mount"))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		left := g.Stop(ctx)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(left) != 1 || left[0] != hung {
			t.Errorf("left: %v", left)
		}
		if _, said := hung.State(); said != "waits for a server" {
			t.Errorf("it says %q", said)
		}
		for _, o := range []*operations.Operation{behind, other} {
			if err := o.Wait(t.Context()); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", o.Key(), err)
			}
		}
		if err := g.Start(t.Context(), w.task("b", "mount")).Wait(t.Context()); !errors.Is(err, operations.ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
		close(hang)
	})
}

func TestOfAndNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, w := operations.New(operations.Config{}), newWork()
		o := g.Start(t.Context(), w.task("a", "mount"))
		if got := g.Of("pod"); len(got) != 1 || got[0] != o || len(g.Of("other")) != 0 {
			t.Errorf("of the pod: %v", got)
		}
		told, not := make(chan struct{}, 1), make(chan struct{}, 1)
		o.Notify(told)
		o.Notify(not)()
		synctest.Wait()
		w.end <- nil
		<-told
		late := make(chan struct{}, 1)
		o.Notify(late)
		<-late
		synctest.Wait()
		if len(not) != 0 {
			t.Error("who stopped listening was woken")
		}
		if len(g.Of("pod")) != 0 {
			t.Error("it is listed though it has ended")
		}
	})
}
