package observed

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// words are what containers leave when they end. It notes who asks for them.
type words struct {
	mu    sync.Mutex
	says  map[string]string
	asked []string
}

// heed has the store ask for words. It may ask only before the end is known.
func (x *watcher) heed(t *testing.T, says map[string]string) *words {
	said := &words{says: says}
	x.ends = ends{message: func(who translate.Identity, c *pod.Container) string {
		if o := x.Get(who.UID); o != nil { // also: this would wait for ever if a lock were held
			for i := range o.Containers {
				if k := &o.Containers[i]; k.ID == c.ID && k.State == pod.ContainerExited {
					t.Errorf("%s was known to have ended before it was asked for its words", c.ID)
				}
			}
		}
		said.mu.Lock()
		defer said.mu.Unlock()
		said.asked = append(said.asked, fmt.Sprintf("%s/%s %s %d", who.Namespace, who.Name, c.ID, c.ExitCode))
		return said.says[c.ID]
	}}
	return said
}

func (s *words) want(t *testing.T, asked ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.asked, asked) {
		t.Errorf("asked for the words of %q, want %q", s.asked, asked)
	}
}

func TestLastWordsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		x := watch(w)
		said := x.heed(t, map[string]string{"c": "out of cheese"})
		x.run(t)
		time.Sleep(2 * subscribeTime)
		w.send(w.addSandbox("a", "s", 0), w.addContainer("s", "c", "main", 0), w.start("c"))
		synctest.Wait()
		said.want(t)
		ended := w.exit("c", 3)
		w.send(ended)
		synctest.Wait()
		check := func(when string) {
			t.Helper()
			if c := x.one(t, "a"); c.Message != "out of cheese" || c.State != pod.ContainerExited {
				t.Errorf("%s: %s, %q", when, c.State, c.Message)
			}
			said.want(t, "ns/name-a c 3")
			if n := x.wakes("a"); n != 4 {
				t.Errorf("%s: %d wake-ups for four changes", when, n)
			}
		}
		check("after the event")
		// The file is gone by now: what is known stays.
		said.mu.Lock()
		said.says = nil
		said.mu.Unlock()
		w.send(ended)
		if err := x.Relist(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.refreshPod(t.Context(), "a")
		_, c, _ := translate.ContainerStatus(w.containers["c"].status, "", "")
		x.ContainerCreated("a", "name-a", "ns", c)
		synctest.Wait()
		check("after the same news again")
		// Another event of the pod tells of it once more, with a later date.
		time.Sleep(time.Second)
		w.send(w.stopSandbox("s"))
		synctest.Wait()
		said.want(t, "ns/name-a c 3")
		if got := x.one(t, "a").Message; got != "out of cheese" {
			t.Errorf("after later news: %q", got)
		}
		w.send(w.removeContainer("c"), ended)
		synctest.Wait()
		said.want(t, "ns/name-a c 3")
	})
}

func TestLastWordsByOtherWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for _, uid := range []string{"listed", "done", "lost", "runs", "refused"} {
			w.addSandbox(uid, "s-"+uid, 0)
			w.addContainer("s-"+uid, uid, "main", 0)
			w.start(uid)
		}
		w.exit("listed", 1)
		w.exit("lost", 1)
		w.exit("refused", 1)
		w.set(func() {
			w.containers["lost"].status.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
			w.refuse["refused"] = status.Error(codes.Internal, "no")
		})
		x := watch(w)
		says := map[string]string{}
		for id := range w.containers {
			says[id] = "bye from " + id
		}
		said := x.heed(t, says)
		x.run(t)
		<-x.Synced()
		said.want(t, "ns/name-listed listed 1")
		if got := x.one(t, "listed").Message; got != "bye from listed" {
			t.Errorf("by a list: %q", got)
		}
		w.exit("done", 2) // and no event is sent
		w.set(func() { w.containers["done"].status.Message = "killed" })
		_, c, _ := translate.ContainerStatus(w.containers["done"].status, "", "")
		x.ContainerCreated("done", "name-done", "ns", c)
		said.want(t, "ns/name-listed listed 1", "ns/name-done done 2")
		if got := x.one(t, "done").Message; got != "killed: bye from done" {
			t.Errorf("by an effect: %q", got)
		}
		// Once the runtime tells how it ended, its words count.
		w.set(func() { delete(w.refuse, "refused") })
		time.Sleep(2 * incompletePeriod)
		said.want(t, "ns/name-listed listed 1", "ns/name-done done 2", "ns/name-refused refused 1")
		if got := x.one(t, "refused").Message; got != "bye from refused" {
			t.Errorf("by a later list: %q", got)
		}
		if got := x.one(t, "done").Message; got != "killed: bye from done" {
			t.Errorf("after a list: %q", got)
		}
	})
}
