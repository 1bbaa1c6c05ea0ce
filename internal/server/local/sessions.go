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

// The paths of sessions in pods are the kubelet's; the names of the pod and container follow them.
const (
	execPath        = "/exec"
	attachPath      = "/attach"
	portForwardPath = "/portForward"
)

// Exec starts a command in a container, in a session that ends with ctx. The query has the command and its streams
// (v1.ExecCommandParam, ...); protocol is the subprotocol of the connection. The caller closes the connection.
func (c *Client) Exec(ctx context.Context, namespace, pod, container string, query url.Values,
	protocol string) (httpstream.Connection, error) {
	return c.session(ctx, query, protocol, execPath, namespace, pod, container)
}

// Attach attaches to the main process of a container, with a session as Exec's.
func (c *Client) Attach(ctx context.Context, namespace, pod, container string, query url.Values,
	protocol string) (httpstream.Connection, error) {
	return c.session(ctx, query, protocol, attachPath, namespace, pod, container)
}

// PortForward starts a session that forwards connections to a pod's ports, as Exec does. It ends with the pod.
func (c *Client) PortForward(ctx context.Context, namespace, pod, protocol string) (httpstream.Connection, error) {
	return c.session(ctx, nil, protocol, portForwardPath, namespace, pod)
}

// maxRefusal is how much of an error's text is read, in bytes.
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

// closable may be closed more than once. Otherwise SPDY's goroutines wait a second for a reader of the second Close's
// error.
type closable struct{ net.Conn }

func (c *closable) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// upgrade requests SPDY on a connection. After an answer that accepts it, the server sends nothing before the client
// does, so nothing is lost in the reader's buffer.
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
