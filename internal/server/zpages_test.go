package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func ask(t *testing.T, h http.Handler, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func status() http.Handler {
	start := time.Date(2026, 3, 1, 10, 0, 0, 500, time.UTC)
	s := AgentStatus{Name: "kubelet", Started: start, Binary: "1.36.3", Build: "v0.5", Paths: []string{"/configz", "/healthz"}}
	return Statusz(func() AgentStatus { return s }, func() time.Time { return start.Add(25*time.Hour + 61*time.Second) })
}

func TestStatuszAsText(t *testing.T) {
	w := ask(t, status(), "")
	text := w.Body.String()
	for _, want := range []string{"kubelet statusz\n", "Started: Sun Mar  1 10:00:00 UTC 2026\n", "Up: 25 hr 01 min 01 sec\n", "Binary version: 1.36.3\n",
		"Emulation version: 1.36\n", "Deckhand version: v0.5\n", "Paths: /configz /healthz\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("it is %v", w.Header())
	}
}

func TestStatuszAsJSON(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		w := ask(t, status(), "application/json;v="+version+";g=config.k8s.io;as=Statusz")
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if got["kind"] != "Statusz" || got["apiVersion"] != "config.k8s.io/"+version || got["startTime"] != "2026-03-01T10:00:00Z" ||
			got["uptimeSeconds"] != 90061.0 || got["metadata"].(map[string]any)["name"] != "kubelet" || len(got["paths"].([]any)) != 2 {
			t.Errorf("it is %s", w.Body)
		}
	}
}

func TestWhatIsAccepted(t *testing.T) {
	for accept, want := range map[string]int{
		"":                            http.StatusOK,
		"*/*":                         http.StatusOK,
		"text/html, text/*;q=0.8":     http.StatusOK,
		"application/json, */*;q=0.1": http.StatusOK, // curl's and browsers' habit
		"application/json":            http.StatusNotAcceptable,
		"application/json;as=Statusz": http.StatusNotAcceptable,
		"application/yaml":            http.StatusNotAcceptable,
		";;;":                         http.StatusNotAcceptable,
		"application/json;v=v1beta1;g=config.k8s.io;as=Flagz": http.StatusNotAcceptable,
	} {
		if w := ask(t, status(), accept); w.Code != want {
			t.Errorf("%q is answered with %d: %s", accept, w.Code, w.Body)
		}
	}
}

func TestFlagz(t *testing.T) {
	h := Flagz("kubelet", []Flag{{"config", "/etc/k.yaml"}, {"node-labels", "a=b\nroot-dir=/evil"}})
	if text := ask(t, h, "").Body.String(); !strings.Contains(text, "\nconfig=/etc/k.yaml\nnode-labels=a=b\\nroot-dir=/evil\n") {
		t.Errorf("it is\n%s", text)
	}
	var got struct{ Flags map[string]string }
	w := ask(t, h, "application/json;v=v1beta1;g=config.k8s.io;as=Flagz")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Flags["config"] != "/etc/k.yaml" || len(got.Flags) != 2 {
		t.Errorf("it is %v %s", err, w.Body)
	}
}

// Each answer is of that moment: a reload changes it.
func TestConfigz(t *testing.T) {
	n := 0
	h := Configz(func() any { n++; return map[string]int{"maxPods": n} })
	for _, want := range []string{`{"kubeletconfig":{"maxPods":1}}`, `{"kubeletconfig":{"maxPods":2}}`} {
		if got := strings.TrimSpace(ask(t, h, "").Body.String()); got != want {
			t.Errorf("%s instead of %s", got, want)
		}
	}
}
