package registry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client asks a registry as one user.
type client struct {
	t    *testing.T
	r    *Registry
	http *http.Client
	// login is put on each request.
	login func(*http.Request)
}

func newClient(t *testing.T, r *Registry, login func(*http.Request)) *client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	if r.CAFile() != "" {
		ca, err := os.ReadFile(r.CAFile())
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			t.Fatalf("%s holds no certificate", r.CAFile())
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	return &client{t: t, r: r, http: &http.Client{Transport: transport}, login: login}
}

func basic(user, password string) func(*http.Request) {
	return func(q *http.Request) { q.SetBasicAuth(user, password) }
}

func bearer(token string) func(*http.Request) {
	return func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+token) }
}

func (c *client) do(method, path string, header ...string) *http.Response {
	c.t.Helper()
	q, err := http.NewRequestWithContext(c.t.Context(), method, c.r.URL()+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.login != nil {
		c.login(q)
	}
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	answer, err := c.http.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

// status is that of the answer to a GET.
func (c *client) status(path string) int {
	c.t.Helper()
	return c.do(http.MethodGet, path).StatusCode
}

func TestPushAndCounts(t *testing.T) {
	r := New(t)
	image := RandomImage(t, 2, 1000)
	if ref := r.Push(t, "team/app:1", image); ref != r.Host()+"/team/app@"+Digest(t, image) {
		t.Errorf("it was pushed as %s", ref)
	}
	if n := len(r.Requests()); n > 0 {
		t.Errorf("pushing was %d requests", n)
	}
	c := newClient(t, r, nil)
	layer := Layers(t, image)[1]
	c.do(http.MethodHead, "/v2/team/app/manifests/1")
	c.do(http.MethodHead, "/v2/team/app/manifests/"+Digest(t, image))
	c.status("/v2/team/app/manifests/" + Digest(t, image))
	c.status("/v2/team/app/manifests/2")
	c.do(http.MethodHead, "/v2/team/app/blobs/"+layer)
	whole, err := io.ReadAll(c.do(http.MethodGet, "/v2/team/app/blobs/"+layer).Body)
	if err != nil {
		t.Fatal(err)
	}
	part := c.do(http.MethodGet, "/v2/team/app/blobs/"+layer, "Range", "bytes=100-")
	rest, err := io.ReadAll(part.Body)
	if err != nil || part.StatusCode != http.StatusPartialContent || string(rest) != string(whole[100:]) {
		t.Errorf("a part: %d, %d bytes of %d, %v", part.StatusCode, len(rest), len(whole), err)
	}
	for name, want := range map[string]int{"team/app:1": 1, "team/app@" + Digest(t, image): 1, "team/app:2": 0, "team/app": 0, "other:1": 0} {
		if n := r.PullCount(name); n != want {
			t.Errorf("%s: %d pulls, want %d", name, n, want)
		}
	}
	if n, m := r.BlobPulls(layer), r.Refused(http.StatusNotFound); n != 2 || m != 1 {
		t.Errorf("%d pulls of the layer, %d not found", n, m)
	}
	if c.status("/v2/team/app/blobs/sha256:"+strings.Repeat("0", 64)) != http.StatusNotFound || c.status("/v2/team/app/blobs/x") != http.StatusBadRequest {
		t.Error("a blob that isn't there is")
	}
}

func TestBasicAuth(t *testing.T) {
	r := New(t, WithTLS(), WithUser("all", "one"), WithUser("some", "two", "team/app"), WithPublic("open"))
	for _, name := range []string{"team/app:1", "other:1", "open:1"} {
		r.Push(t, name, RandomImage(t, 1, 10))
	}
	for _, c := range []struct {
		login             func(*http.Request)
		app, other, open_ int
	}{
		{nil, 401, 401, 200}, {basic("all", "one"), 200, 200, 200}, {basic("some", "two"), 200, 403, 200},
		{basic("all", "two"), 401, 401, 200}, {basic("nobody", ""), 401, 401, 200}, {bearer("x"), 401, 401, 200},
	} {
		one := newClient(t, r, c.login)
		got := []int{one.status("/v2/team/app/manifests/1"), one.status("/v2/other/manifests/1"), one.status("/v2/open/manifests/1")}
		if fmt.Sprint(got) != fmt.Sprint([]int{c.app, c.other, c.open_}) {
			t.Errorf("the answers are %v, want %d %d %d", got, c.app, c.other, c.open_)
		}
	}
	r.SetPassword("all", "three")
	if newClient(t, r, basic("all", "one")).status("/v2/") != 401 || newClient(t, r, basic("all", "three")).status("/v2/") != 200 {
		t.Error("the password is as it was")
	}
	if how := newClient(t, r, nil).do(http.MethodGet, "/v2/").Header.Get("WWW-Authenticate"); !strings.HasPrefix(how, "Basic ") {
		t.Errorf("it asks for %s", how)
	}
}

func TestBearer(t *testing.T) {
	r := New(t, WithBearer(), WithUser("me", "one", "app"), WithIdentityToken("me", "id"))
	r.Push(t, "app:1", RandomImage(t, 1, 10))
	if how := newClient(t, r, nil).do(http.MethodGet, "/v2/app/manifests/1").Header.Get("WWW-Authenticate"); how != `Bearer realm="`+r.URL()+`/token",service="test",scope="repository:app:pull"` {
		t.Errorf("it asks for %s", how)
	}
	token := func(answer *http.Response) string {
		var in struct{ Token string }
		if err := json.NewDecoder(answer.Body).Decode(&in); err != nil || answer.StatusCode != http.StatusOK {
			return ""
		}
		return in.Token
	}
	post := func(values url.Values) string {
		answer, err := newClient(t, r, nil).http.PostForm(r.URL()+tokenPath, values)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		return token(answer)
	}
	good := token(newClient(t, r, basic("me", "one")).do(http.MethodGet, tokenPath))
	for _, c := range []struct {
		name, token string
		want        int
	}{
		{"the password", good, 200},
		{"a wrong one", token(newClient(t, r, basic("me", "two")).do(http.MethodGet, tokenPath)), 401},
		{"nobody's", token(newClient(t, r, nil).do(http.MethodGet, tokenPath)), 401},
		{"the password by POST", post(url.Values{"username": {"me"}, "password": {"one"}}), 200},
		{"the identity token", post(url.Values{"refresh_token": {"id"}}), 200},
		{"another", post(url.Values{"refresh_token": {"x"}}), 401},
	} {
		if got := newClient(t, r, bearer(c.token)).status("/v2/app/manifests/1"); got != c.want {
			t.Errorf("a token for %s: %d, want %d", c.name, got, c.want)
		}
	}
	if got := newClient(t, r, basic("me", "one")).status("/v2/app/manifests/1"); got != 401 {
		t.Errorf("the password itself: %d", got)
	}
	r.SetPassword("me", "two")
	if got := newClient(t, r, bearer(good)).status("/v2/app/manifests/1"); got != 401 {
		t.Errorf("a token for an old password: %d", got)
	}
}

func TestFaults(t *testing.T) {
	r := New(t)
	image := RandomImage(t, 1, 10000)
	r.Push(t, "app:1", image)
	layer := Layers(t, image)[0]
	path := "/v2/app/blobs/" + layer
	c := newClient(t, r, nil)
	read := func() (int, error) {
		data, err := io.ReadAll(c.do(http.MethodGet, path).Body)
		return len(data), err
	}
	size, err := read()
	if err != nil || size < 10000 {
		t.Fatal(size, err)
	}

	r.Fail(Failure{Kind: Manifests, Repository: "app", Status: 429, RetryAfter: 2 * time.Second, Times: 2})
	r.Fail(Failure{Status: 500, Times: 1})
	var got []string
	for range 4 {
		answer := c.do(http.MethodGet, "/v2/app/manifests/1")
		got = append(got, fmt.Sprintf("%d:%s", answer.StatusCode, answer.Header.Get("Retry-After")))
	}
	if fmt.Sprint(got) != "[429:2 429:2 500: 200:]" || r.PullCount("app:1") != 1 || r.Refused(429) != 2 {
		t.Errorf("the answers are %v, %d pulls, %d refused", got, r.PullCount("app:1"), r.Refused(429))
	}
	r.Fail(Failure{Status: 500, Times: 1000})
	r.Recover()
	if answer := c.do(http.MethodGet, "/v2/app/manifests/1"); answer.StatusCode != http.StatusOK {
		t.Errorf("when it has recovered, the answer is %s", answer.Status)
	}

	r.CutBlob(layer, 500, 2)
	for range 2 {
		if n, err := read(); n != 500 || err == nil {
			t.Errorf("cut off after %d bytes, %v", n, err)
		}
	}
	if n, err := read(); n != size || err != nil {
		t.Errorf("then %d bytes, %v", n, err)
	}

	stop := r.StopBlob(layer, 700)
	answer := c.do(http.MethodGet, path)
	if _, err := io.ReadFull(answer.Body, make([]byte, 700)); err != nil {
		t.Error(err)
	}
	<-stop.Reached()
	stop.Release()
	stop.Release()
	if rest, err := io.ReadAll(answer.Body); len(rest) != size-700 || err != nil {
		t.Errorf("after the release %d bytes, %v", len(rest), err)
	}
	if n, err := read(); n != size || err != nil {
		t.Errorf("the next has %d bytes, %v", n, err)
	}

	r.SlowBlob(layer, int64(size)*10)
	start := time.Now()
	if n, err := read(); n != size || err != nil || time.Since(start) < 80*time.Millisecond {
		t.Errorf("%d bytes, %v, in %v", n, err, time.Since(start))
	}
}

// TestShutdownDoesNotWait: an answer that is stopped when the test ends doesn't keep it.
func TestShutdownDoesNotWait(t *testing.T) {
	t.Run("with a stopped answer", func(t *testing.T) {
		var answer *http.Response
		t.Cleanup(func() { answer.Body.Close() }) // after the registry's own end
		r := New(t)
		image := RandomImage(t, 1, 10000)
		r.Push(t, "app:1", image)
		layer := Layers(t, image)[0]
		stop := r.StopBlob(layer, 10)
		c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		var err error
		if answer, err = c.Get(r.URL() + "/v2/app/blobs/" + layer); err != nil {
			t.Fatal(err)
		}
		<-stop.Reached()
	})
}

func TestFromArchive(t *testing.T) {
	archive := filepath.Join("..", "..", "bin", "images", "web.tar")
	image := FromArchive(t, archive, "deckhand.local/web:1")
	file, err := image.ConfigFile()
	if err != nil || len(file.Config.Entrypoint) != 1 {
		t.Fatalf("%+v, %v", file, err)
	}
	other := WithLayer(t, image, 100)
	if Digest(t, other) == Digest(t, image) || len(Layers(t, other)) != len(Layers(t, image))+1 {
		t.Error("a layer more makes no other image")
	}
	r := New(t)
	r.Push(t, "web:1", image)
	if got := newClient(t, r, nil).status("/v2/web/manifests/1"); got != 200 {
		t.Errorf("its manifest: %d", got)
	}
}
