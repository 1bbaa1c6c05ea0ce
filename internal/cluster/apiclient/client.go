// Package apiclient is the agent's only client of the API server. It reads a kubeconfig, again whenever it changes.
// It makes calls and watches; each class of calls has its own rate limit and its own connections. It explains why a
// call failed and when to try again, and it tracks since when the server answers or doesn't.
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

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Class is the purpose of a call.
type Class int

const (
	// Heartbeat is for leases. Such a call never waits for other calls, and times out after a quarter of the lease's
	// duration.
	Heartbeat Class = iota
	// Calls is for calls of no other class.
	Calls
	Events
	// Reviews is for TokenReviews and SubjectAccessReviews. Calls of other classes never wait for reviews, however many
	// unauthenticated requests the node receives.
	Reviews
	classes
)

// Rate limits the calls of a class. The zero Rate is no limit.
type Rate struct {
	// PerSecond is the rate in the long run, Burst how many calls may be made in a row without a delay.
	PerSecond float64
	Burst     int
}

// Config configures a Client.
type Config struct {
	// Kubeconfig is the path of the kubeconfig.
	Kubeconfig string
	// Rotated is a file with a client certificate and its key. It need not exist yet. The client uses this certificate
	// or the kubeconfig's, depending on which is newer. Empty if certificates aren't rotated.
	Rotated string
	// Awaited says that the kubeconfig will be written later: a missing file isn't logged.
	Awaited bool
	// ContentType is the media type in which objects are sent and requested (contentType).
	ContentType string
	// UserAgent is the User-Agent header.
	UserAgent string
	// LeaseDuration is the duration of the node's lease (nodeLeaseDurationSeconds).
	LeaseDuration time.Duration
	// Calls and Events limit the calls of these classes. Reviews have a limiter of their own, at the rate of Calls.
	Calls, Events Rate
	// Files reports changes of the kubeconfig and the files that it names.
	Files *filewatch.Instance
	// Dial opens connections; nil for a net.Dialer.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Meter Meter
	Log   logr.Logger
}

// Meter counts calls. Its methods may be called concurrently.
type Meter interface {
	// Requested counts a request by the HTTP status of its answer, "<error>" if there was no answer.
	Requested(code, method, host string)
	// Took records how long a call took and how large its bodies were, Waited how long the rate limit delayed it.
	Took(verb, host string, d time.Duration, sent, received int)
	Waited(verb, host string, d time.Duration)
	// Retried counts a watch that is tried again; code is the HTTP status of the failure, "<error>" if there was no
	// answer.
	Retried(code, verb, host string)
	// PluginCalled counts runs of credential plugins by exit code and client-go's name of the outcome.
	PluginCalled(code int, status string)
	// TransportMade counts new http.Transports, each a pool of connections.
	TransportMade()
}

// UserAgent is the User-Agent of a client of this version, in the kubelet's form.
func UserAgent(version, commit string) string {
	return fmt.Sprintf("kubelet/%s (%s/%s) kubernetes/%s", version, runtime.GOOS, runtime.GOARCH,
		commit[:min(len(commit), 7)])
}

const (
	// callLimit is the timeout of calls, except heartbeats.
	callLimit = 30 * time.Second
	// drainLimit is how long calls with an earlier kubeconfig may continue.
	drainLimit = 10 * time.Second
	// missedLimit is the number of heartbeats in a row without an answer after which all connections are closed.
	missedLimit = 2
)

// Client talks to one API server with one identity. Its methods may be called concurrently. Calls wait until the
// kubeconfig was read for the first time.
type Client struct {
	conf   Config
	codecs serializer.CodecFactory
	reach  *reach
	store  *store
	limits [classes]*rate.Limiter
	// stale triggers a reading of the kubeconfig.
	stale wake.Slot
	// read is closed once the kubeconfig was read for the first time.
	read     chan struct{}
	readOnce sync.Once
	draining sync.WaitGroup
	// last and warned are the last error and warning about the kubeconfig. Only Run uses them.
	last   logging.LastError
	warned string

	mu  sync.Mutex
	now *session
	// sessions counts the sessions so far.
	sessions int
	// problem is why there is no session.
	problem error
}

// New returns a client. It does nothing before Run.
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

// SetRates changes the rate limits, from the next call on.
func (c *Client) SetRates(calls, events Rate) {
	for class, r := range map[Class]Rate{Calls: calls, Events: events, Reviews: calls} {
		c.limits[class].SetLimit(r.limit())
		c.limits[class].SetBurst(max(r.Burst, 1))
	}
}

// Reached reports whether the server answers, and since when that has been so. If the server doesn't answer, err is the
// reason.
func (c *Client) Reached() (ok bool, since time.Time, err error) { return c.reach.now() }

// Subscribe returns a channel that receives after Reached changed. stop ends the subscription.
func (c *Client) Subscribe() (woken <-chan struct{}, stop func()) { return c.reach.changed.Subscribe() }

// Recovered returns a channel that receives when a call succeeds after earlier calls have failed because the server was
// unreachable, failing or overloaded. It also receives when the kubeconfig has changed. stop ends the subscription.
func (c *Client) Recovered() (woken <-chan struct{}, stop func()) {
	return c.reach.recovered.Subscribe()
}

// Get reads an object. The namespace is empty for cluster-scoped resources.
func (c *Client) Get(ctx context.Context, class Class, r Resource, namespace, name string, into kruntime.Object) error {
	return c.call(ctx, class, r, "GET", into, func(q *rest.Request) *rest.Request {
		return q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String()).Name(name)
	})
}

// List reads all objects that the selectors choose.
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

// Create creates an object, or a subresource, such as "token", of the object that obj names.
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

// call makes one request. It decodes the answer into an object, the parameter into, unless that is nil.
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

// whenSent returns a context for a call. The function sent is called right before that call's request is sent, after
// the delay of the rate limit.
func whenSent(ctx context.Context, sent func()) context.Context {
	return context.WithValue(ctx, sentKey{}, sent)
}

// do makes one request. read decodes the answer; most is the answer's largest size in bytes.
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
	// client-go logs bodies with the context's logger.
	quietly, o := withOutcome(klog.NewContext(ctx, logr.Discard()), most)
	// The caller decides about retries.
	result := build(rest.NewRequest(s.classes[class].rest[r]).Verb(verb)).MaxRetries(0).Do(quietly)
	took := time.Since(o.began)
	received, _ := result.Raw()
	c.conf.Meter.Took(verb, s.id.server.Host, took, o.sent, len(received))
	return c.judge(ctx, class, s, o, read(result))
}

// session returns the current session. The caller has to call calls.Done of the session when its call has ended.
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

// host is the server's host, for metrics.
func (c *Client) host() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		return "none"
	}
	return c.now.id.server.Host
}

// wait delays a call until the rate limit admits it.
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

// judge updates the server's state by the result of a call, and explains an error.
func (c *Client) judge(ctx context.Context, class Class, s *session, o *outcome, err error) error {
	if err == nil {
		s.missed.Store(0)
		s.lastAnswer.Store(new(time.Now()))
		c.reach.answered(s.id.server.String(), true)
		return nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return err // the caller has cancelled the call
	}
	if errors.Is(context.Cause(ctx), errUnresponsive) {
		o.err, err = errUnresponsive, errUnresponsive
	}
	e := diagnose(err, o, s.id)
	if o.code == 0 && class == Heartbeat && s.missed.Add(1) >= missedLimit {
		// A connection whose other end is gone looks alive for minutes.
		s.missed.Store(0)
		s.reconnect()
	}
	if s.ofCall(class, o, e) {
		e.trouble, e.Advice = own,
			"it answers other calls: check the network and proxies between this node and the API server, and its log"
	}
	switch {
	case s.replaced.Err() != nil, e.trouble == own:
	case e.trouble == noTrouble:
		s.lastAnswer.Store(new(time.Now()))
		c.reach.answered(e.Server, !failing(codeOf(err)))
	default:
		c.reach.failed(e)
		if e.trouble == badCredentials || e.trouble == clientRefused || e.trouble == wrongCA {
			c.stale.Wake() // the files may have changed
		}
	}
	return e
}
