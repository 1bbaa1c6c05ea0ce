package local

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The paths of sessions in pods are the kubelet's, below which the pod is named.
const (
	execPath        = "/exec"
	attachPath      = "/attach"
	portForwardPath = "/portForward"
)

// Exec begins a session with a command in a container, which ends with ctx. The query says which command, and which
// streams it is to have (v1.ExecCommandParam, ...); what is spoken on the connection is the protocol. The caller closes
// it.
func (c *Client) Exec(ctx context.Context, namespace, pod, container string, query url.Values,
	protocol string) (httpstream.Connection, error) {
	return c.session(ctx, query, protocol, execPath, namespace, pod, container)
}

// Attach begins a session with the main process of a container, as Exec does.
func (c *Client) Attach(ctx context.Context, namespace, pod, container string, query url.Values,
	protocol string) (httpstream.Connection, error) {
	return c.session(ctx, query, protocol, attachPath, namespace, pod, container)
}

// PortForward begins a session that carries connections to a pod's ports, as Exec does. It ends with the pod.
func (c *Client) PortForward(ctx context.Context, namespace, pod, protocol string) (httpstream.Connection, error) {
	return c.session(ctx, nil, protocol, portForwardPath, namespace, pod)
}

// maxRefusal is how much of the reason for a refusal is read.
const maxRefusal = 64 << 10

func (c *Client) session(ctx context.Context, query url.Values, protocol, path string,
	names ...string) (httpstream.Connection, error) {
	dialed, err := c.dial(ctx, "", "")
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	conn := &closable{dialed}
	context.AfterFunc(ctx, func() { conn.Close() })
	response, err := upgrade(ctx, conn, query, protocol, path, names)
	if err != nil {
		conn.Close()
		return nil, c.explain(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusSwitchingProtocols {
		return spdy.NewClientConnection(conn)
	}
	defer conn.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	reason := strings.TrimSpace(string(text))
	if reason == "" {
		reason = "the agent answered " + response.Status
	}
	return nil, &StatusError{Code: response.StatusCode, Err: errors.New(reason)}
}

// closable may be closed more than once: SPDY's goroutines wait for a second for somebody to hear of an error.
type closable struct{ net.Conn }

func (c *closable) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// upgrade asks for SPDY on a connection. After an answer that admits to it, nobody says anything before the client
// does.
func upgrade(ctx context.Context, conn net.Conn, query url.Values, protocol, path string,
	names []string) (*http.Response, error) {
	for _, name := range names {
		path += "/" + url.PathEscape(name)
	}
	target := url.URL{Scheme: "http", Host: "deckhand", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	request.Header.Set(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	request.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), request)
}
