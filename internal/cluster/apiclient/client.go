// Package apiclient is the one client of the API server. It reads a kubeconfig, and reads it again when it changes; it
// calls and watches, each class of calls at its own rate and on its own connection; it says why a call failed and when
// it is worth trying again; and it knows since when the server answers or doesn't.
package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Class is what a call is for.
type Class int

const (
	// Heartbeat is for leases. It waits for no other call, and has a quarter of the lease's duration.
	Heartbeat Class = iota
	// Calls is for all else but events and reviews.
	Calls
	Events
	// Reviews is for questions about who somebody is and may do: however many strangers have them asked, no other call
	// waits.
	Reviews
	classes
)

// Rate is how often calls of a class are made. The zero Rate is no limit.
type Rate struct {
	// PerSecond is the number in the long run, Burst how many may come at once.
	PerSecond float64
	Burst     int
}

// Config says what a Client works with.
type Config struct {
	// Kubeconfig is a path.
	Kubeconfig string
	// Rotated is a file with a client certificate and its key, or none yet: of this and the kubeconfig's the newer one
	// is used. Empty where certificates aren't rotated.
	Rotated string
	// Awaited says that somebody writes the kubeconfig: it is no trouble if there is none yet.
	Awaited bool
	// ContentType is the one that objects are sent with, and asked for (contentType).
	ContentType string
	// UserAgent is what the server knows the client by.
	UserAgent string
	// LeaseDuration is that of the node's lease (nodeLeaseDurationSeconds).
	LeaseDuration time.Duration
	// Calls is the rate of reviews, too, which are counted apart.
	Calls, Events Rate
	// Dial makes connections; nil for the network's.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Meter Meter
	Log   logr.Logger
}

// Meter counts. Its methods may be called concurrently.
type Meter interface {
	// Requested counts a request by the status of its answer, "<error>" if there was none.
	Requested(code, method, host string)
	// Took is how long a call took, and how large its bodies were; Waited is how long it waited for its turn before.
	Took(verb, host string, d time.Duration, sent, received int)
	Waited(verb, host string, d time.Duration)
	// Retried counts a watch that is tried again after that status.
	Retried(code, verb, host string)
	// PluginCalled counts runs of credential plugins.
	PluginCalled(code int, status string)
	// TransportMade counts sets of connections.
	TransportMade()
}

// UserAgent is how a client of this version calls itself: in the kubelet's form.
func UserAgent(version, commit string) string {
	return fmt.Sprintf("kubelet/%s (%s/%s) kubernetes/%s", version, runtime.GOOS, runtime.GOARCH,
		commit[:min(len(commit), 7)])
}

const (
	// callLimit bounds a call whose context doesn't.
	callLimit = 30 * time.Second
	// drainLimit is how long calls with an earlier kubeconfig may take.
	drainLimit = 10 * time.Second
	// missedLimit is after how many heartbeats in a row without an answer all connections are closed.
	missedLimit = 2
)

// Client talks to one API server with one identity. Its methods may be called concurrently. Calls made before the
// kubeconfig was read for the first time wait for that.
type Client struct {
	conf   Config
	codecs serializer.CodecFactory
	reach  *reach
	store  *store
	limits [classes]*rate.Limiter
	// stale has the kubeconfig read again.
	stale wake.Slot
	// read is closed when it was read once.
	read     chan struct{}
	readOnce sync.Once
	draining sync.WaitGroup
	// said is what was logged of the kubeconfig last. Only Run uses it.
	said string

	mu  sync.Mutex
	now *session
	// sessions counts how many there were.
	sessions int
	// problem is why there is no session.
	problem error
}

// New returns a client. It doesn't do anything before Run.
func New(c Config) (*Client, error) {
	codecs, err := newCodecs()
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &Client{conf: c, codecs: codecs, reach: newReach(c.Log), store: newStore(c.Log), stale: wake.NewSlot(),
		read: make(chan struct{}),
		limits: [classes]*rate.Limiter{Heartbeat: limiter(Rate{}), Calls: limiter(c.Calls), Events: limiter(c.Events),
			Reviews: limiter(c.Calls)}}, nil
}

func limiter(r Rate) *rate.Limiter { return rate.NewLimiter(r.limit(), max(r.Burst, 1)) }

func (r Rate) limit() rate.Limit {
	if r.PerSecond <= 0 {
		return rate.Inf
	}
	return rate.Limit(r.PerSecond)
}

// SetRates changes how often calls are made, from the next one on.
func (c *Client) SetRates(calls, events Rate) {
	for class, r := range map[Class]Rate{Calls: calls, Events: events, Reviews: calls} {
		c.limits[class].SetLimit(r.limit())
		c.limits[class].SetBurst(max(r.Burst, 1))
	}
}

// Reached says since when the server answers, or since when and why it doesn't.
func (c *Client) Reached() (ok bool, since time.Time, err error) { return c.reach.now() }

// Subscribe returns a channel that receives after Reached changed. stop ends the subscription.
func (c *Client) Subscribe() (woken <-chan struct{}, stop func()) { return c.reach.changed.Subscribe() }

// Recovered returns a channel that receives after a call succeeded when others had failed as the server was away, or
// had answered that it fails or has too much to do, and after the kubeconfig has changed. stop ends the subscription.
func (c *Client) Recovered() (woken <-chan struct{}, stop func()) {
	return c.reach.recovered.Subscribe()
}

// Get gets an object. Namespaces are empty for resources that have none.
func (c *Client) Get(ctx context.Context, class Class, r Resource, namespace, name string, into kruntime.Object) error {
	return c.call(ctx, class, r, "GET", into, func(q *rest.Request) *rest.Request {
		return q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String()).Name(name)
	})
}

// List gets all chosen objects as they are now.
func (c *Client) List(ctx context.Context, r Resource, namespace string, chosen Selectors) (List, error) {
	var all List
	err := c.do(ctx, Calls, r, "GET", maxListOf(r), func(q *rest.Request) *rest.Request {
		return chosen.request(q, r, namespace)
	}, func(result rest.Result) error {
		body, err := result.Raw()
		if err != nil {
			return result.Error()
		}
		var kind string
		result.ContentType(&kind)
		all, err = decodeList(r, kind, body)
		return err
	})
	return all, err
}

// Create makes an object, or a subresource of the one that it names, such as "token".
func (c *Client) Create(ctx context.Context, class Class, r Resource, namespace string, obj, into kruntime.Object,
	sub ...string) error {
	return c.call(ctx, class, r, "POST", into, func(q *rest.Request) *rest.Request {
		q = q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String())
		if len(sub) > 0 {
			q = q.Name(nameOf(obj)).SubResource(sub...)
		}
		return q.Body(obj)
	})
}

// Update replaces an object.
func (c *Client) Update(ctx context.Context, class Class, r Resource, namespace string, obj,
	into kruntime.Object) error {
	return c.call(ctx, class, r, "PUT", into, func(q *rest.Request) *rest.Request {
		return q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String()).Name(nameOf(obj)).Body(obj)
	})
}

// Patch patches an object, or a subresource such as "status".
func (c *Client) Patch(ctx context.Context, class Class, r Resource, namespace, name string, kind types.PatchType,
	body []byte, into kruntime.Object, sub ...string) error {
	return c.call(ctx, class, r, "PATCH", into, func(q *rest.Request) *rest.Request {
		return q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String()).Name(name).SubResource(sub...).
			SetHeader("Content-Type", string(kind)).Body(body)
	})
}

// Delete deletes an object.
func (c *Client) Delete(ctx context.Context, class Class, r Resource, namespace, name string,
	how metav1.DeleteOptions) error {
	return c.call(ctx, class, r, "DELETE", nil, func(q *rest.Request) *rest.Request {
		return q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String()).Name(name).Body(&how)
	})
}

func nameOf(obj kruntime.Object) string {
	if m, ok := obj.(metav1.Object); ok {
		return m.GetName()
	}
	return ""
}

// call makes one request, whose answer is an object.
func (c *Client) call(ctx context.Context, class Class, r Resource, verb string, into kruntime.Object,
	build func(*rest.Request) *rest.Request) error {
	most := int64(maxObject)
	if class != Calls {
		most = maxSmall
	}
	return c.do(ctx, class, r, verb, most, build, func(result rest.Result) error {
		if into == nil {
			return result.Error()
		}
		err := result.Into(into)
		if err == nil && class == Heartbeat {
			c.store.beat(into)
		}
		return err
	})
}

type sentKey struct{}

// whenSent has a function called when a call has had its turn, and is about to be sent.
func whenSent(ctx context.Context, sent func()) context.Context {
	return context.WithValue(ctx, sentKey{}, sent)
}

// do makes one request, whose answer is read and has at most so many bytes.
func (c *Client) do(ctx context.Context, class Class, r Resource, verb string, most int64,
	build func(*rest.Request) *rest.Request, read func(rest.Result) error) error {
	limit := callLimit
	if class == Heartbeat {
		limit = c.conf.LeaseDuration / 4
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	s, err := c.session(ctx)
	if err != nil {
		return err
	}
	defer s.calls.Done()
	if err := c.wait(ctx, class, verb, s); err != nil {
		return err
	}
	if sent, ok := ctx.Value(sentKey{}).(func()); ok {
		sent()
	}
	// client-go writes bodies to the context's logger.
	quietly, o := withOutcome(klog.NewContext(ctx, logr.Discard()), most)
	// The caller decides about retries.
	result := build(rest.NewRequest(s.classes[class].rest[r]).Verb(verb)).MaxRetries(0).Do(quietly)
	took := time.Since(o.began)
	received, _ := result.Raw()
	c.conf.Meter.Took(verb, s.id.server.Host, took, o.sent, len(received))
	return c.judge(ctx, class, s, o, read(result))
}

// session is the one now, in use until its calls are Done.
func (c *Client) session(ctx context.Context) (*session, error) {
	select {
	case <-c.read:
	case <-ctx.Done():
		return nil, fmt.Errorf("the kubeconfig %s isn't read yet: %w", c.conf.Kubeconfig, ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return nil, &Error{Err: c.problem, trouble: badKubeconfig}
	}
	c.now.calls.Add(1)
	return c.now, nil
}

func (c *Client) sessionCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions
}

// host is the server's, for metrics.
func (c *Client) host() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return "none"
	}
	return c.now.id.server.Host
}

// wait waits for a call's turn.
func (c *Client) wait(ctx context.Context, class Class, verb string, s *session) error {
	l := c.limits[class]
	if l.Limit() == rate.Inf {
		return nil
	}
	began := time.Now()
	if err := l.Wait(ctx); err != nil {
		return fmt.Errorf("the rate limit of calls to the API server (%g a second): %w", float64(l.Limit()), err)
	}
	c.conf.Meter.Waited(verb, s.id.server.Host, time.Since(began))
	return nil
}

// judge records what a call's result says of the server, and explains an error.
func (c *Client) judge(ctx context.Context, class Class, s *session, o *outcome, err error) error {
	if err == nil {
		s.missed.Store(0)
		s.heard.Store(new(time.Now()))
		c.reach.answered(s.id.server.String(), true)
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err // who asked doesn't want to know
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		o.err, err = errSilent, errSilent
	}
	e := diagnose(err, o, s.id)
	if o.code == 0 && class == Heartbeat && s.missed.Add(1) >= missedLimit {
		// Connections that nothing comes back on look alive for minutes.
		s.missed.Store(0)
		s.reconnect()
	}
	if s.ofCall(class, o, e) {
		e.trouble, e.Advice = own,
			"it answers other calls: look at what is between this node and the API server, and at its log"
	}
	switch {
	case s.replaced.Err() != nil, e.trouble == own:
	case e.trouble == noTrouble:
		s.heard.Store(new(time.Now()))
		c.reach.answered(e.Server, !failing(codeOf(err)))
	default:
		c.reach.failed(e)
		if e.trouble == badCredentials || e.trouble == clientRefused || e.trouble == wrongCA {
			c.stale.Wake() // the files may say something else by now
		}
	}
	return e
}
