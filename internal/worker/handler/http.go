package handler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// User-Agent headers of probes and hooks.
const (
	probeAgent = "kube-probe/" + kubernetesVersion
	hookAgent  = "kube-lifecycle/" + kubernetesVersion
)

// probeHTTP succeeds for a status from 200 to 399. A status of 300 or more comes with a warning: it is a redirect to
// another host, or has no Location.
func (h *Handlers) probeHTTP(ctx context.Context, t Target, action *v1.HTTPGetAction, timeout time.Duration) Outcome {
	request, err := newRequest(t, action, probeAgent)
	if err != nil {
		return unknown(err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := h.http.get(ctx, request)
	switch {
	case err != nil:
		return unanswered(err)
	case answer.Status < 200 || answer.Status >= 400:
		return failure("HTTP probe failed with statuscode: " + strconv.Itoa(answer.Status))
	case answer.Status >= 300:
		return Outcome{State: Warning, Message: "Probe terminated redirects",
			Output: text("Probe terminated redirects, Response body: " + string(answer.Body))}
	}
	return Outcome{State: Success}
}

// hookHTTP fails if there is no response. Any status is accepted: the API doesn't restrict it, and pods rely on that
// (kubernetes/kubernetes#56963).
//
// If the server doesn't use TLS, the request is repeated over HTTP: hooks ignored the scheme before Kubernetes 1.26,
// and such hooks have to continue to work. The repeated request doesn't contain the pod's headers, which were meant for
// TLS only and may be secret.
func (h *Handlers) hookHTTP(ctx context.Context, t Target, action *v1.HTTPGetAction) error {
	request, err := newRequest(t, action, hookAgent)
	if err != nil {
		return err
	}
	answer, err := h.http.get(ctx, request)
	if errors.Is(err, errPlainHTTP) {
		h.log.V(2).Info("HTTPS hook's server speaks HTTP only: asking it again over HTTP. Set the hook's scheme to HTTP",
			"pod", klog.KObj(t.Pod), "url", request.URL.Redacted())
		answer, err = h.http.get(ctx, request.Plain())
	}
	switch {
	case err != nil:
		return errors.New(text(err.Error()))
	case answer.Status >= 400:
		h.log.V(2).Info("HTTP hook was answered with an error status, which counts as done",
			"pod", klog.KObj(t.Pod), "url", request.URL.Redacted(), "status", answer.Status)
	}
	return nil
}

// newRequest converts an action to a request.
func newRequest(t Target, action *v1.HTTPGetAction, agent string) (getRequest, error) {
	at, err := t.endpoint(action.Host, action.Port)
	if err != nil {
		return getRequest{}, err
	}
	scheme := strings.ToLower(string(action.Scheme))
	switch scheme {
	case "":
		scheme = "http"
	case "http", "https":
	default:
		return getRequest{}, fmt.Errorf("scheme %q isn't supported: use HTTP or HTTPS", action.Scheme)
	}
	u := target(action.Path)
	u.Scheme, u.Host = scheme, net.JoinHostPort(at.host, strconv.Itoa(at.port))
	header, host := headers(action.HTTPHeaders, agent)
	return getRequest{URL: u, Host: host, Header: header}, nil
}

// target returns a URL that has only the path and the query. Parts of the string that look like a host, a user or a
// scheme are ignored.
func target(path string) *url.URL {
	parsed, err := url.Parse(path)
	if err != nil || parsed.Opaque != "" {
		parsed = &url.URL{Path: path}
	}
	u := &url.URL{Path: parsed.Path, RawPath: parsed.RawPath, RawQuery: parsed.RawQuery, ForceQuery: parsed.ForceQuery}
	if !strings.HasPrefix(u.Path, "/") {
		u.Path = "/" + u.Path
		if u.RawPath != "" {
			u.RawPath = "/" + u.RawPath
		}
	}
	return u
}

// headers returns the given headers and the two defaults of a probe; an empty value removes such a default. The
// header Host becomes the request's Host.
func headers(given []v1.HTTPHeader, agent string) (h http.Header, host string) {
	h = make(http.Header, len(given)+2)
	for _, g := range given {
		h.Add(g.Name, g.Value)
	}
	host = h.Get("Host")
	h.Del("Host")
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{agent}
	}
	if _, ok := h["Accept"]; !ok {
		h["Accept"] = []string{"*/*"}
	} else if h.Get("Accept") == "" {
		h.Del("Accept")
	}
	return h, host
}
