package apiclient

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A kubeconfig that can't be used is read again less and less, a call that fails as if it weren't the right one has it read
// again, but not for each such call, and nothing else does.
func TestWhenTheKubeconfigIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "/absent/kubeconfig", nil)
		f := &files{}
		reads, began := 0, time.Now()
		for failures := 0; time.Since(began) < time.Hour; failures++ {
			at := time.Now()
			wait := backoff(firstRead, failures)
			if changed, ok := c.await(t.Context(), f, wait, at); changed || !ok || time.Since(at) != wait || wait > lastDelay {
				t.Fatalf("read again after %s, want %s", time.Since(at), wait)
			}
			reads++
		}
		if reads < 60 || reads > 130 {
			t.Errorf("%d readings in an hour", reads)
		}
		at := time.Now()
		for range 10 {
			c.stale.Wake()
		}
		if changed, ok := c.await(t.Context(), f, -1, at); changed || !ok || time.Since(at) != readGap {
			t.Errorf("read again after %s, want %s", time.Since(at), readGap)
		}
		changes := make(chan struct{}, 1)
		changes <- struct{}{}
		f.changed = changes
		if changed, ok := c.await(t.Context(), f, -1, time.Now()); !changed || !ok {
			t.Error("a change isn't noticed")
		}
	})
}

// Calls that hang don't hold up the end, nor another kubeconfig for longer than they may take.
func TestEndWithHangingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newPipes0(t), nil, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := newClient(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial })
		if _, err := c.load(); err != nil {
			t.Fatal(err)
		}
		var errs [2]error
		ended := make(chan struct{}, 2)
		call := func(i int) { errs[i] = c.get(t.Context(), Calls); ended <- struct{}{} }
		go call(0)
		synctest.Wait()
		text, err := os.ReadFile(c.conf.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		write(t, c.conf.Kubeconfig, strings.Replace(string(text), "user: {}", "user: {token: other}", 1))
		began := time.Now()
		if _, err := c.load(); err != nil {
			t.Fatal(err)
		}
		<-ended
		if took := time.Since(began); took != drainLimit || errs[0] == nil {
			t.Errorf("a call of before: %v after %s", errs[0], took)
		}
		go call(1)
		synctest.Wait()
		began = time.Now()
		c.end()
		<-ended
		if took := time.Since(began); took != 0 || errs[1] == nil {
			t.Errorf("a call at the end: %v after %s", errs[1], took)
		}
		if err := c.get(t.Context(), Calls); err == nil || !strings.Contains(err.Error(), errEnded.Error()) {
			t.Errorf("after the end: %v", err)
		}
		if ok, _, err := c.Reached(); ok || err == nil {
			t.Errorf("reached: %t, %v", ok, err)
		}
	})
}

// What doesn't answer now and then is told at most once a minute, and that it answers again only after that.
func TestFlappingIsntALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, "/kubeconfig", nil)
		for range 600 {
			c.reach.failed(&Error{Err: errUnresponsive, trouble: unresponsive})
			time.Sleep(500 * time.Millisecond)
			c.reach.answered("https://h", true)
			time.Sleep(500 * time.Millisecond)
		}
		if bad, good := c.log.count("can't be used"), c.log.count("answers again"); bad != 10 || good != 10 {
			t.Errorf("told %d and %d times in 10 min", bad, good)
		}
	})
}
