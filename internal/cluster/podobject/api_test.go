package podobject_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// The object that is deleted is the one that was seen, whatever has its name by now, and it is at once: the pod has had its grace.
func TestDeleteNamesTheUID(t *testing.T) {
	var got metav1.DeleteOptions
	var path string
	pods := podsOf(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.Method + " " + r.URL.Path
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		answer(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	})
	if err := pods.Delete(t.Context(), "ns", "a", "uid-1"); err != nil {
		t.Fatal(err)
	}
	if p := got.Preconditions; path != "DELETE /api/v1/namespaces/ns/pods/a" || p == nil || p.UID == nil || *p.UID != "uid-1" || got.GracePeriodSeconds == nil || *got.GracePeriodSeconds != 0 {
		t.Errorf("%s with %+v", path, got)
	}
}

// One pod that can't be decoded is a problem that names it; others come, and what was known of it stays.
func TestMalformedPod(t *testing.T) {
	const good = `{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":"5"},"spec":{"containers":[{"name":"c"}]}}`
	const bad = `{"metadata":{"namespace":"ns","name":"b","uid":"2","resourceVersion":"%d"},"spec":{"terminationGracePeriodSeconds":"soon"}}`
	events, lists := make(chan string), make(chan string, 10)
	list := func(items string) string {
		return `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[` + items + `]}`
	}
	lists <- list(fmt.Sprintf(good, "a", "1") + "," + fmt.Sprintf(good, "b", "2"))
	pods := podsOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			answer(w, <-lists)
			return
		}
		answer(w, "")
		w.(http.Flusher).Flush()
		for {
			select {
			case e := <-events:
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
				if strings.Contains(e, `"ERROR"`) {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	})
	c := podobject.NewCache(pods, logr.Discard())
	woken, stop := c.ProblemsChanged()
	defer stop()
	changed, stop := c.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	defer running.Wait()
	defer cancel()
	until := func(what string, holds func() bool) {
		t.Helper()
		for !holds() {
			select {
			case <-woken:
			case <-changed.Woken():
				changed.Drain()
			case <-time.After(time.Minute):
				t.Fatalf("not %s: %+v", what, c.Problems())
			}
		}
	}
	until("listed", c.Synced)
	event := func(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }
	events <- event("MODIFIED", fmt.Sprintf(bad, 11))
	until("told", func() bool { return len(c.Problems()) == 1 })
	if p := c.Problems()[0]; p.Pod != "ns/b" || p.Since.IsZero() || c.Get("2") == nil {
		t.Errorf("%+v; its object is %v", p, c.Get("2"))
	}
	events <- event("ADDED", `{"kind":"Pod","apiVersion":"v1",`+strings.Replace(fmt.Sprintf(good, "c", "3"), `"5"`, `"12"`, 1)[1:])
	until("seen", func() bool { return c.Get("3") != nil })
	lists <- list(fmt.Sprintf(good, "a", "1") + "," + fmt.Sprintf(bad, 13))
	events <- event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`)
	until("listed again", func() bool { return c.Get("3") == nil })
	if c.Get("1") == nil || c.Get("2") == nil || len(c.Problems()) != 1 {
		t.Errorf("a list with it: %v, %v, %+v", c.Get("1"), c.Get("2"), c.Problems())
	}
	lists <- list(`7,` + strings.Replace(fmt.Sprintf(good, "a", "4"), `"5"`, `"14"`, 1))
	events <- event("ERROR", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}`)
	until("listed with one that may be any", func() bool { return c.Get("4") != nil })
	if c.Get("1") != nil || c.Get("2") == nil {
		t.Errorf("a list with one that may be any: %v, %v", c.Get("1"), c.Get("2"))
	}
	events <- event("DELETED", fmt.Sprintf(bad, 15))
	until("gone", func() bool { return c.Get("2") == nil && len(c.Problems()) == 1 })
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(text))
}

// podsOf are the pods of a node at a server that answers by a function.
func podsOf(t *testing.T, handle http.HandlerFunc) podobject.Pods {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}], clusters: [{name: k, cluster: {server: '" + s.URL + "'}}], users: [{name: u, user: {}}]}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Config{Kubeconfig: path, Files: filewatch.New(filewatch.Every, logr.Discard()), ContentType: runtime.ContentTypeJSON, LeaseDuration: 40 * time.Second, Meter: unmetered{}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return podobject.PodsOf(c, "n1")
}

type unmetered struct{}

func (unmetered) Requested(string, string, string)             {}
func (unmetered) Took(string, string, time.Duration, int, int) {}
func (unmetered) Waited(string, string, time.Duration)         {}
func (unmetered) Retried(string, string, string)               {}
func (unmetered) PluginCalled(int, string)                     {}
func (unmetered) TransportMade()                               {}
