package apiclient

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Each verb asks what the API knows it by, with the configured type.
func TestCalls(t *testing.T) {
	var asked []string
	s := newServer(t, listen(t), nil, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		kind := "-"
		if len(body) > 0 {
			kind = string(body[:min(len(body), 4)])
		}
		asked = append(asked, fmt.Sprintf("%s %s %s %q accepts %s", r.Method, r.URL, r.Header.Get("Content-Type"), kind, r.Header.Get("Accept")))
		if r.UserAgent() != UserAgent("v1.36.3-deckhand", "0123456789ab") || !strings.HasPrefix(r.UserAgent(), "kubelet/v1.36.3-deckhand (linux/") || !strings.HasSuffix(r.UserAgent(), " kubernetes/0123456") {
			t.Errorf("user agent %q", r.UserAgent())
		}
		answer(200, node("5"))(w, r)
	})
	c := loaded(t, s.kubeconfig(t, ""), func(c *Config) { c.ContentType = kruntime.ContentTypeProtobuf })
	ctx := t.Context()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	got := &v1.Node{}
	for name, err := range map[string]error{
		"get":    c.Get(ctx, Calls, Nodes, "", "n1", got),
		"create": c.Create(ctx, Calls, Nodes, "", n, got),
	} {
		if err != nil || got.ResourceVersion != "5" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	asked = nil
	for _, err := range []error{
		c.Get(ctx, Heartbeat, Leases, "kube-node-lease", "n1", got),
		c.Create(ctx, Calls, Nodes, "", n, got),
		c.Create(ctx, Calls, Pods, "ns", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, got, "eviction"),
		c.Update(ctx, Calls, Nodes, "", n, got),
		c.Patch(ctx, Calls, Nodes, "", "n1", types.StrategicMergePatchType, []byte(`{"status":{}}`), got, "status"),
		c.Delete(ctx, Calls, Pods, "ns", "p", *metav1.NewDeleteOptions(0)),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	const both = "application/vnd.kubernetes.protobuf,application/json"
	const proto = "application/vnd.kubernetes.protobuf"
	want := []string{
		`GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1  "-" accepts ` + both,
		`POST /api/v1/nodes ` + proto + ` "k8s\x00" accepts ` + both,
		`POST /api/v1/namespaces/ns/pods/p/eviction ` + proto + ` "k8s\x00" accepts ` + both,
		`PUT /api/v1/nodes/n1 ` + proto + ` "k8s\x00" accepts ` + both,
		`PATCH /api/v1/nodes/n1/status application/strategic-merge-patch+json "{\"st" accepts ` + both,
		`DELETE /api/v1/namespaces/ns/pods/p ` + proto + ` "k8s\x00" accepts ` + both,
	}
	if !slices.Equal(asked, want) {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
	if ok, _, err := c.Reached(); !ok || err != nil {
		t.Errorf("reached: %t, %v", ok, err)
	}
}

// What goes wrong is said once, with the server, the reason and what to do; it is one request, and Retry says the rest.
func TestTroubles(t *testing.T) {
	type setup struct {
		change func(*x509.Certificate)
		handle http.HandlerFunc
		who    string
		// kubeconfig changes the text of the kubeconfig.
		kubeconfig func(string, *server) string
	}
	other := newAuthority(t)
	oldCert, oldKey := newAuthority(t).issue(expired)
	data := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct {
		setup
		want    []string
		calls   int32
		trouble trouble
		again   bool
	}{
		"wrong CA": {setup{kubeconfig: func(text string, s *server) string { return strings.Replace(text, data(s.ca.pem), data(other.pem), 1) }},
			[]string{"certificate signed by unknown authority", "must be signed by an authority in clusters[k].cluster.certificate-authority of "}, 0, wrongCA, true},
		"expired server certificate": {setup{change: expired}, []string{"certificate has expired", "renew the server's certificate; if it is valid, this machine's clock is wrong"}, 0, serverExpired, true},
		"another name": {setup{change: func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"kubernetes"} }},
			[]string{"127.0.0.1", "or set clusters[k].cluster.tls-server-name of "}, 0, wrongHost, true},
		"foreign expired client certificate": {setup{who: "client-certificate-data: " + data(oldCert) + ", client-key-data: " + data(oldKey)},
			[]string{"it refused the TLS handshake: remote error: tls: ", "check the client certificate in users[u].user of ", "users[u].user.client-certificate-data has expired at "}, 0, clientRefused, true},
		"not TLS": {setup{kubeconfig: func(text string, s *server) string { return strings.Replace(text, s.url, plain(t), 1) }},
			[]string{"it doesn't speak TLS", "check scheme and port in clusters[k].cluster.server of "}, 0, notTLS, true},
		"TLS asked without": {setup{kubeconfig: func(text string, _ *server) string { return strings.Replace(text, "https://", "http://", 1) }},
			[]string{"400 Bad Request", "check clusters[k].cluster.server of "}, 0, notAPI, true},
		"nobody listens": {setup{kubeconfig: func(text string, s *server) string { return strings.Replace(text, s.url, "https://"+closed(t), 1) }},
			[]string{"connection refused", "nothing listens there"}, 0, refused, true},
		"no such name": {setup{kubeconfig: func(text string, s *server) string {
			return strings.Replace(text, s.url, "https://absent.invalid:6443", 1)
		}},
			[]string{"absent.invalid", "check the name in clusters[k].cluster.server of "}, 0, badName, true},
		"connections are cut": {setup{handle: func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) }}, []string{"stream error"}, 1, broken, true},
		"200 with HTML":       {setup{handle: html(200)}, []string{`it answers with "text/html; charset=utf-8" (200 OK), which an API server doesn't`, "check clusters[k].cluster.server of "}, 1, notAPI, true},
		"404 with HTML":       {setup{handle: html(404)}, []string{`it answers with 404 Not Found and "text/html; charset=utf-8"`}, 1, notAPI, true},
		"a redirection": {setup{handle: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/login", http.StatusFound)
		}},
			[]string{"it answers with a redirection (302 Found)"}, 1, notAPI, true},
		"502 with HTML": {setup{handle: html(502)}, []string{"its load balancer has no backend"}, 1, unavailable, true},
		"503":           {setup{handle: refusal(503, metav1.StatusReasonServiceUnavailable)}, []string{"no: ServiceUnavailable", "it is starting or stopping"}, 1, unavailable, true},
		"401":           {setup{handle: refusal(401, metav1.StatusReasonUnauthorized), who: "token: secret-token"}, []string{"no: Unauthorized", "users[u].user of ", "doesn't have credentials that the server accepts"}, 1, badCredentials, true},
		"403":           {setup{handle: refusal(403, metav1.StatusReasonForbidden)}, []string{"no: Forbidden"}, 1, noTrouble, true},
		"404":           {setup{handle: refusal(404, metav1.StatusReasonNotFound)}, []string{"no: NotFound"}, 1, noTrouble, false},
		"409":           {setup{handle: refusal(409, metav1.StatusReasonConflict)}, []string{"no: Conflict"}, 1, noTrouble, false},
		"500":           {setup{handle: refusal(500, metav1.StatusReasonInternalError)}, []string{"no: InternalError"}, 1, noTrouble, true},
		"429 with Retry-After": {setup{handle: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7") // in plain text, as priority and fairness does
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}}, []string{"too many requests"}, 1, noTrouble, true},
		"half an object": {setup{handle: answer(200, `{"kind":"No`)}, []string{"its answer can't be decoded", "unexpected"}, 1, noTrouble, true},
		"half of what was promised": {setup{handle: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			answer(200, `{"kind":"No`)(w, r)
		}}, []string{"check the API server's log"}, 1, broken, true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.handle == nil {
				c.handle = answer(200, node("1"))
			}
			s := newServer(t, listen(t), c.change, c.handle)
			path := s.kubeconfig(t, c.who)
			if c.kubeconfig != nil {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				write(t, path, c.setup.kubeconfig(string(text), s))
			}
			client := loaded(t, path, nil)
			var err error
			for range 3 {
				err = client.get(t.Context(), Calls)
			}
			var e *Error
			if !errors.As(err, &e) || e.trouble != c.trouble {
				t.Fatalf("%v: %+v, want trouble %d", err, e, c.trouble)
			}
			for _, want := range append(c.want, "API server http") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s\ndoesn't say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error()+client.log.String(), "secret-token") {
				t.Errorf("%q, %s", err, client.log)
			}
			again, after := Retry(err, 0)
			if again != c.again || name == "429 with Retry-After" && after < 7*time.Second {
				t.Errorf("retry: %t after %s", again, after)
			}
			if got := s.calls.Load(); got != 3*c.calls {
				t.Errorf("%d requests for 3 calls", got)
			}
			ok, _, why := client.Reached()
			if ok != (c.trouble == noTrouble) || (why == nil) != ok {
				t.Errorf("reached: %t, %v", ok, why)
			}
			if n := client.log.count("can't be used"); n != min(int(c.trouble), 1) {
				t.Errorf("told %d times:\n%s", n, client.log)
			}
		})
	}
}

// plain is the URL of a server without TLS.
func plain(t *testing.T) string {
	t.Helper()
	l := listen(t)
	web := &http.Server{Handler: answer(200, node("1"))}
	var running sync.WaitGroup
	running.Go(func() { _ = web.Serve(l) })
	t.Cleanup(func() {
		_ = web.Close()
		running.Wait()
	})
	return "https://" + l.Addr().String()
}

// closed is an address that nobody listens on.
func closed(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

func TestErrorsAreTheServers(t *testing.T) {
	s := newServer(t, listen(t), nil, refusal(404, metav1.StatusReasonNotFound))
	c := loaded(t, s.kubeconfig(t, ""), nil)
	if err := c.get(t.Context(), Calls); !apierrors.IsNotFound(err) {
		t.Errorf("not found is %v", err)
	}
}

// A server that accepts and never answers costs a call its time and no more, and is found by heartbeats.
func TestSilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newPipes0(t), nil, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		c := loaded(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial })
		for class, limit := range map[Class]time.Duration{Heartbeat: 10 * time.Second, Calls: callLimit, Events: callLimit} {
			began := time.Now()
			err := c.get(t.Context(), class)
			if took := time.Since(began); took != limit || err == nil || !strings.Contains(err.Error(), "accepts connections and doesn't answer: check the API server's log") {
				t.Errorf("class %d: after %s: %v", class, took, err)
			}
		}
		if n := c.log.count("can't be used"); n != 1 {
			t.Errorf("told %d times:\n%s", n, c.log)
		}
		if calls := s.calls.Load(); calls != 3 {
			t.Errorf("%d requests", calls)
		}
		// A caller who gives up isn't the server's fault.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		cancel()
		if err := c.get(ctx, Calls); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	})
}

func newPipes0(t *testing.T) *pipes {
	p := newPipes()
	t.Cleanup(func() { p.Close() })
	return p
}

// Two heartbeats without an answer close the connections of all classes.
func TestMissedHeartbeatsCloseConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hang atomic.Bool
		s := newServer(t, newPipes0(t), nil, func(w http.ResponseWriter, r *http.Request) {
			if hang.Load() {
				<-r.Context().Done()
				return
			}
			answer(200, node("1"))(w, r)
		})
		c := loaded(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial })
		for class := range classes {
			for range 3 {
				if err := c.get(t.Context(), class); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := s.dials.Load(); n != int32(classes) {
			t.Fatalf("%d connections for %d classes", n, classes)
		}
		hang.Store(true)
		for range missedLimit {
			if c.get(t.Context(), Heartbeat) == nil {
				t.Error("a heartbeat without an answer succeeds")
			}
		}
		hang.Store(false)
		for class := range classes {
			if err := c.get(t.Context(), class); err != nil {
				t.Error(err)
			}
		}
		if n := s.dials.Load(); n != 2*int32(classes) {
			t.Errorf("%d connections, want %d new ones", n, classes)
		}
	})
}

// Calls and events wait for their turn, heartbeats never do.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newPipes0(t), nil, answer(200, node("1")))
		c := loaded(t, s.kubeconfig(t, ""), func(conf *Config) {
			conf.Dial, conf.Calls, conf.Events = s.dial, Rate{PerSecond: 10, Burst: 5}, Rate{PerSecond: 1, Burst: 1}
		})
		for class, want := range map[Class]time.Duration{Heartbeat: 0, Calls: 1500 * time.Millisecond, Events: 19 * time.Second} {
			began := time.Now()
			for range 20 {
				if err := c.get(t.Context(), class); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(began); took < want || took > want+want/100 {
				t.Errorf("20 calls of class %d took %s, want %s", class, took, want)
			}
		}
		if c.meter.of("requested 200 GET") != 60 || c.meter.of("waited GET") != 40 || c.meter.of("took GET false true") != 60 || c.meter.of("transport") != int(classes) {
			t.Errorf("metrics %v", c.meter.counts)
		}
	})
}

// At the highest verbosity nothing of what is sent and got is logged.
func TestNothingSecretIsLogged(t *testing.T) {
	s := newServer(t, listen(t), nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-token" {
			t.Errorf("authorization %q", r.Header.Get("Authorization"))
		}
		answer(200, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"secret-answer"}}`)(w, r)
	})
	c := loaded(t, s.kubeconfig(t, "token: secret-token"), nil)
	library := libraryLog(t)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "secret-body"}}
	if err := c.Create(t.Context(), Calls, Pods, "ns", pod, pod); err != nil || pod.Name != "secret-answer" {
		t.Fatal(pod, err)
	}
	s.handle.Store(new(refusal(500, "secret-reason")))
	if err := c.Create(t.Context(), Calls, Pods, "ns", pod, pod); err == nil {
		t.Fatal("no error")
	}
	if text := c.log.String() + library(); strings.Contains(text, "secret-") || text == "" {
		t.Errorf("logged:\n%s", text)
	}
}

// A kubeconfig that can't be used is told once for each mistake, and used as soon as it is corrected; what works isn't given up
// for a later mistake.
func TestKubeconfigIsReadAgain(t *testing.T) {
	one := newServer(t, listen(t), nil, answer(200, node("1")))
	two := newServer(t, listen(t), nil, answer(200, node("2")))
	good := func(s *server) string {
		text, err := os.ReadFile(s.kubeconfig(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	c := newClient(t, path, nil)
	woken, stop := c.Subscribe()
	defer stop()
	c.run(t)
	if err := c.get(t.Context(), Calls); err == nil || err.Error() != "kubeconfig "+path+": no such file or directory" {
		t.Fatalf("without a kubeconfig: %v", err)
	}
	// until gets until a condition holds, each time that something has changed.
	until := func(what string, holds func(*v1.Node, error) bool) {
		t.Helper()
		for {
			n := &v1.Node{}
			if err := c.Get(t.Context(), Calls, Nodes, "", "n1", n); holds(n, err) {
				return
			}
			select {
			case <-woken:
			case <-time.After(30 * time.Second):
				t.Fatalf("not %s:\n%s", what, c.log)
			}
		}
	}
	write(t, path, good(one))
	until("the first server", func(n *v1.Node, err error) bool { return err == nil && n.ResourceVersion == "1" })
	write(t, path, "{kind: Config}")
	write(t, path, good(two))
	until("the second server", func(n *v1.Node, err error) bool { return err == nil && n.ResourceVersion == "2" })
	if n := c.log.count("no such file"); n != 1 {
		t.Errorf("told %d times:\n%s", n, c.log)
	}
}
