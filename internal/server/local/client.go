package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

// ErrStopped ends a stream when the agent stops.
var ErrStopped = errors.New("the agent stopped")

// NoAgentError means that no agent answers at a socket.
type NoAgentError struct {
	Path string
	Err  error
}

func (e *NoAgentError) Error() string {
	return fmt.Sprintf("no agent answers at %s (%v): start it with `systemctl start deckhand`, or `deckhand up "+
		"DIRECTORY`; for another root directory use --root-dir", e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *NoAgentError) Unwrap() error { return e.Err }

// Client calls the agent's API. Its methods may be called concurrently. Each call opens a connection and closes it at
// the end.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client for the socket at path. It connects when first used.
func NewClient(path string) *Client {
	c := &Client{path: path}
	c.http = &http.Client{Transport: &http.Transport{DialContext: c.dial, DisableKeepAlives: true}}
	return c
}

// Path returns the path of the agent's socket.
func (c *Client) Path() string { return c.path }

// Snapshot returns the agent's current state.
func (c *Client) Snapshot(ctx context.Context) (Snapshot, error) {
	return get[Snapshot](ctx, c, "/v1/snapshot", nil)
}

// Node returns the state of the node and the resources of its pods.
func (c *Client) Node(ctx context.Context) (Node, error) {
	return get[Node](ctx, c, "/v1/node", nil)
}

// Summary returns the resource usage of the node and its pods.
func (c *Client) Summary(ctx context.Context) (statsapi.Summary, error) {
	return get[statsapi.Summary](ctx, c, "/stats/summary", nil)
}

// Configuration returns the configuration in effect.
func (c *Client) Configuration(ctx context.Context) (Configuration, error) {
	return get[Configuration](ctx, c, "/v1/config", nil)
}

// Events returns recent events, the newest last.
func (c *Client) Events(ctx context.Context) ([]Event, error) {
	return get[[]Event](ctx, c, "/v1/events", nil)
}

// WatchEvents yields the recent events, and then events that are new or have recurred, until ctx ends, the loop is
// left or an error was yielded. The error is ErrStopped when the agent stops.
func (c *Client) WatchEvents(ctx context.Context) iter.Seq2[[]Event, error] {
	return stream[[]Event](func() (*http.Response, error) {
		return c.do(ctx, http.MethodGet, "/v1/events/watch", nil, nil)
	})
}

// Watch yields a snapshot at once and after changes, until ctx ends, the loop is left or an error was yielded. The
// error is ErrStopped when the agent stops.
func (c *Client) Watch(ctx context.Context) iter.Seq2[Snapshot, error] {
	return stream[Snapshot](func() (*http.Response, error) {
		return c.do(ctx, http.MethodGet, "/v1/watch", nil, nil)
	})
}

// Run runs the pods of a manifest for as long as the loop over the result goes on: when it is left, or ctx ends, the
// agent stops them. It yields updates like Watch.
func (c *Client) Run(ctx context.Context, origin string, manifest []byte) iter.Seq2[RunUpdate, error] {
	updates := stream[RunUpdate](func() (*http.Response, error) {
		return c.do(ctx, http.MethodPost, "/v1/run", url.Values{"origin": {origin}}, bytes.NewReader(manifest))
	})
	return func(yield func(RunUpdate, error) bool) {
		for update, err := range updates {
			if err == nil && update.Error != "" {
				err = errors.New(update.Error)
			}
			if !yield(update, err) || err != nil {
				return
			}
		}
	}
}

// Logs returns a container's log. The caller closes it. Its Read returns an error other than io.EOF if the agent
// couldn't send all of the log.
func (c *Client) Logs(ctx context.Context, request LogRequest) (io.ReadCloser, error) {
	response, err := c.do(ctx, http.MethodGet, "/v1/logs", request.query(), nil)
	if err != nil {
		return nil, err
	}
	return &trailedBody{response}, nil
}

// trailedBody is a body that ends with the error in the trailer, if there is one.
type trailedBody struct{ response *http.Response }

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.response.Body.Read(p)
	if errors.Is(err, io.EOF) {
		if message := b.response.Trailer.Get(errorTrailer); message != "" {
			return n, errors.New(message)
		}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return n, ErrStopped
	}
	return n, err
}

func (b *trailedBody) Close() error { return b.response.Body.Close() }

// Why returns the explanation of a pod's state.
func (c *Client) Why(ctx context.Context, namespace, pod string) (Explanation, error) {
	return get[Explanation](ctx, c, "/v1/why", url.Values{"namespace": {namespace}, "pod": {pod}})
}

// Journal returns the transcript of recent decisions about a pod, by this agent or, if previous is set, by the one
// before. The caller closes it.
func (c *Client) Journal(ctx context.Context, namespace, pod string, previous bool) (io.ReadCloser, error) {
	return c.text(ctx, "/v1/journal", url.Values{"namespace": {namespace}, "pod": {pod},
		"previous": {strconv.FormatBool(previous)}})
}

// NodeJournal returns the transcript of recent decisions about evictions. The caller closes it.
func (c *Client) NodeJournal(ctx context.Context) (io.ReadCloser, error) {
	return c.text(ctx, "/v1/journal/node", nil)
}

func (c *Client) text(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	response, err := c.do(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	return ask[T](ctx, c, http.MethodGet, path, query, nil)
}

func ask[T any](ctx context.Context, c *Client, method, path string, query url.Values, body io.Reader) (T, error) {
	var answer T
	response, err := c.do(ctx, method, path, query, body)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return answer, fmt.Errorf("read the agent's answer: %w", err)
	}
	return answer, nil
}

func stream[T any](open func() (*http.Response, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		response, err := open()
		if err != nil {
			yield(none, err)
			return
		}
		defer response.Body.Close()
		decoder := json.NewDecoder(bufio.NewReader(response.Body))
		for {
			var next T
			err := decoder.Decode(&next)
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = ErrStopped
			}
			if !yield(next, err) || err != nil {
				return
			}
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values,
	body io.Reader) (*http.Response, error) {
	target := url.URL{Scheme: "http", Host: "deckhand", Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response, nil
	}
	defer response.Body.Close()
	var answer errorBody
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&answer); err != nil ||
		answer.Message == "" {
		answer.Message = "the agent answered " + response.Status
	}
	return nil, &StatusError{Code: response.StatusCode, Err: errors.New(answer.Message)}
}

func (c *Client) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no access to the agent's socket %s: only root and the agent's own user have it; try sudo",
			c.path)
	case errors.Is(err, fs.ErrNotExist):
		return &NoAgentError{c.path, errors.New("no such socket")}
	case errors.Is(err, syscall.ECONNREFUSED):
		return &NoAgentError{c.path, errors.New("nobody listens")}
	case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
		return ErrStopped
	}
	return fmt.Errorf("ask the agent at %s: %w", c.path, err)
}

func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return socket.Dial(ctx, c.path)
}
