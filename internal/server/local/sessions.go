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

// The paths of sessions in pods, as in the kubelet's API. The namespace and the names of the pod and container follow.
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

// Attach attaches to the main process of a container. Its parameters and its session are like Exec's.
func (c *Client) Attach(ctx context.Context, namespace, pod, container string, query url.Values,
	protocol string) (httpstream.Connection, error) {
	return c.session(ctx, query, protocol, attachPath, namespace, pod, container)
}

// PortForward starts a session that forwards connections to a pod's ports. It ends with ctx or with the pod. The caller
// closes the connection.
func (c *Client) PortForward(ctx context.Context, namespace, pod, protocol string) (httpstream.Connection, error) {
	return c.session(ctx, nil, protocol, portForwardPath, namespace, pod)
}

// maxRefusal is the maximum number of bytes that are read of the agent's error message.
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

// closable is a connection whose Close may be called more than once without an error. SPDY calls it twice, and its
// goroutines would wait a second for a reader of the second error.
type closable struct{ net.Conn }

func (c *closable) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// upgrade requests SPDY on a connection. The buffer of the reader may be dropped: after the server has accepted, it
// sends nothing before the client does.
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
