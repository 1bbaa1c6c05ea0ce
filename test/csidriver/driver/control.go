// Package driver runs test/csidriver, the CSI driver for tests, and speaks to its control socket.
package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
)

// Call is one call that the driver received.
type Call struct {
	// Seq counts the calls of a state directory from 1, in the order of their arrival.
	Seq int
	// Method is the last part of the gRPC name, such as NodePublishVolume.
	Method string
	// Volume is the volume_id, or the name of a CreateVolume.
	Volume string `json:",omitempty"`
	// Target is the target_path, the volume_path, or the staging_target_path of Stage and Unstage.
	Target string `json:",omitempty"`
	// Request is the whole request as protobuf's JSON, with its secrets.
	Request json.RawMessage
	// Mounted reports whether Target was a mount point when the call arrived.
	Mounted bool `json:",omitempty"`
	// Rule is the rule that matched the call, 0 for none.
	Rule int `json:",omitempty"`
	// Held reports whether the call waits for Release.
	Held bool `json:",omitempty"`

	Began time.Time
	Ended time.Time `json:",omitzero"`
	// Code is the code of the answer ("OK"), "cut" or "killed" without an answer, and empty while the call runs.
	Code    string `json:",omitempty"`
	Message string `json:",omitempty"`
	// Left reports whether the caller's deadline passed, or the caller canceled or disconnected, before the answer.
	Left bool `json:",omitempty"`
}

// Decode reads a field of the request by its name in protobuf's JSON, such as "volumeContext".
func (c Call) Decode(field string, into any) error {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.Request, &fields); err != nil || fields[field] == nil {
		return err
	}
	return json.Unmarshal(fields[field], into)
}

// An Action is what a Rule does with a call instead of answering it as ever.
type Action string

// Fail answers with Rule.Code. Cut closes the connection, which cuts all other calls on it. Kill ends the driver with
// SIGKILL. Skip answers OK without doing anything. NoMount works as ever but makes directories without mounts.
const (
	Fail    Action = "fail"
	Cut     Action = "cut"
	Kill    Action = "kill"
	Skip    Action = "skip"
	NoMount Action = "nomount"
)

// Rule selects calls, and says what happens to them. The first rule that matches a call acts.
type Rule struct {
	// ID is set by the driver.
	ID int
	// Method, and if they are set Volume and Target, select the calls. An empty Method selects every call.
	Method string
	Volume string `json:",omitempty"`
	Target string `json:",omitempty"`
	// Nth is the first selected call that the rule acts on, counted from 1 since the rule was added; 0 is 1.
	Nth int `json:",omitempty"`
	// Count is how many calls from the Nth on the rule acts on: 0 is one, negative all.
	Count int `json:",omitempty"`
	// Hold lets the call wait for Release first. The driver ignores that the caller has left: it hangs.
	Hold bool `json:",omitempty"`
	// After lets Hold and Do happen after the driver's work instead of before it.
	After bool `json:",omitempty"`
	// Do is empty for the driver's own answer.
	Do Action `json:",omitempty"`
	// Code and Message are the error of Fail.
	Code    codes.Code `json:",omitempty"`
	Message string     `json:",omitempty"`
}

// Violation is a call that the law of calls doesn't allow.
type Violation struct {
	// Rule is a short name, such as "publish-not-staged".
	Rule string
	// Seq and Volume are the call's.
	Seq    int
	Volume string
	Text   string
}

// Registration is what the node reported about the registration.
type Registration struct {
	Registered bool
	Error      string `json:",omitempty"`
	At         time.Time
}

// State is everything that a driver reports. Version grows with each change of the rest.
type State struct {
	Version       int
	Calls         []Call
	Violations    []Violation
	Registrations []Registration
	// Infos counts the calls of the registration's GetInfo.
	Infos int
}

// Of returns the calls of a method, of all for "".
func (s State) Of(method string) (calls []Call) {
	for _, c := range s.Calls {
		if method == "" || c.Method == method {
			calls = append(calls, c)
		}
	}
	return calls
}

// Client speaks to the control socket of a driver.
type Client struct {
	http *http.Client
}

// NewClient returns a client of the control socket at path.
func NewClient(path string) *Client {
	return &Client{http: &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return socket.Dial(ctx, path) },
		DisableKeepAlives: true, // nothing to close in tests
	}}}
}

func (c *Client) request(ctx context.Context, method, path string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return fmt.Errorf("ask the CSI driver: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("ask the CSI driver: %s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(answer)
}

// State returns the state of now.
func (c *Client) State(ctx context.Context) (State, error) { return c.StateAfter(ctx, -1) }

// StateAfter waits until the state's version is higher than this.
func (c *Client) StateAfter(ctx context.Context, version int) (s State, err error) {
	err = c.request(ctx, http.MethodGet, "/state?after="+strconv.Itoa(version), nil, &s)
	return s, err
}

// Await waits until the state is as wanted. It returns the last state with an error if ctx ends before.
func (c *Client) Await(ctx context.Context, wanted func(State) bool) (State, error) {
	s, err := c.State(ctx)
	for err == nil && !wanted(s) {
		var next State
		if next, err = c.StateAfter(ctx, s.Version); err == nil {
			s = next
		}
	}
	return s, err
}

// Add adds a rule and returns its ID.
func (c *Client) Add(ctx context.Context, r Rule) (id int, err error) {
	err = c.request(ctx, http.MethodPost, "/rules", r, &id)
	return id, err
}

// Release lets the calls go on that a rule holds, and removes the rule. With 0 it does so for all rules.
func (c *Client) Release(ctx context.Context, rule int) error {
	return c.request(ctx, http.MethodDelete, "/rules?"+url.Values{"id": {strconv.Itoa(rule)}}.Encode(), nil, nil)
}

// Clear removes the calls that have ended and the violations from the state.
func (c *Client) Clear(ctx context.Context) error {
	return c.request(ctx, http.MethodPost, "/clear", nil, nil)
}
