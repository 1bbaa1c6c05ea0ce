package provider

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider/execplugin"
)

// program runs a plugin. *execplugin.Plugin implements it.
type program interface {
	Ask(ctx context.Context, r execplugin.Request) (execplugin.Response, error)
}

// plugin is one plugin with its cached responses.
type plugin struct {
	config  Provider
	program program
	atOnce  *semaphore.Weighted
	metrics Metrics
	log     logr.Logger

	mu    sync.Mutex
	cache cache
	calls map[callKey]*call
	// last is the cache key type of the plugin's last response. The next response most likely has the same type.
	last pluginv1.PluginCacheKeyType
}

func newPlugin(config Provider, p program, atOnce *semaphore.Weighted, metrics Metrics, log logr.Logger) *plugin {
	return &plugin{config: config, program: p, atOnce: atOnce, metrics: metrics, log: log,
		cache: cache{}, calls: map[callKey]*call{}, last: pluginv1.RegistryPluginCacheKeyType}
}

func (p *plugin) isFor(image credentials.Image) bool {
	return slices.ContainsFunc(p.config.Match, func(m credentials.Pattern) bool { return m.Matches(image) })
}

// callKey identifies callers that share a call. The cache key of a response isn't available before the response, so a
// call starts under the key that is expected, without a pod. Callers that can't use the response make another call,
// under the key of their image and pod.
type callKey struct {
	cacheKey
	pod string
}

// call is a running call. It continues while any of its waiters remains. It is cancelled when the last waiter's
// context ends; that waiter returns only after the call has ended.
type call struct {
	key     callKey
	asker   asker
	cancel  context.CancelCauseFunc
	waiters int
	// done is closed when entries and err have been set.
	done    chan struct{}
	entries []credentials.Entry
	err     error
}

// goodFor reports whether the asker may use an uncached response: a response for one pod's token must not be used for
// another pod.
func (c *call) goodFor(a asker) bool {
	return c.asker.image.Name() == a.image.Name() && c.asker.scope == a.scope && c.asker.pod == a.pod
}

// ask returns the plugin's entries for the asker: from the cache, from a running call or from a new call. It waits
// for at most one call whose response it can't use.
func (p *plugin) ask(ctx context.Context, a asker) ([]credentials.Entry, error) {
	entries, c := p.join(ctx, a, true)
	if c == nil {
		return entries, nil
	}
	if err := p.await(ctx, c); err != nil || c.goodFor(a) {
		return c.result(err)
	}
	if entries, c = p.join(ctx, a, false); c == nil {
		return entries, nil
	}
	return c.result(p.await(ctx, c))
}

// await waits for the call, unless ctx ends first.
func (p *plugin) await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		p.leave(c)
		return ctx.Err()
	}
}

// result returns the call's result, unless waiting for it failed.
func (c *call) result(waiting error) ([]credentials.Entry, error) {
	if waiting != nil {
		return nil, waiting
	}
	return c.entries, c.err
}

// join returns cached entries, or else a call to wait for. If shared is true, the call may be for another image or
// pod: the asker can probably use its response.
func (p *plugin) join(ctx context.Context, a asker, shared bool) ([]credentials.Entry, *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if entries, ok := p.cache.get(a); ok {
		return entries, nil
	}
	key := callKey{a.key(pluginv1.ImagePluginCacheKeyType), "pod " + a.pod}
	if shared {
		key = callKey{a.key(p.last), ""}
	}
	if c, ok := p.calls[key]; ok {
		c.waiters++
		return nil, c
	}
	// The call outlives its first waiter if there are others.
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	c := &call{key: key, asker: a, cancel: cancel, waiters: 1, done: make(chan struct{})}
	p.calls[key] = c
	go func() {
		defer close(c.done)
		defer cancel(nil)
		c.entries, c.err = p.run(callCtx, a)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forget(c)
	}()
	return nil, c
}

// leave removes a waiter. A cancelled call can't be joined.
func (p *plugin) leave(c *call) {
	p.mu.Lock()
	c.waiters--
	isLast := c.waiters == 0
	if isLast {
		p.forget(c)
	}
	p.mu.Unlock()
	if isLast {
		c.cancel(errGone)
		<-c.done
	}
}

func (p *plugin) forget(c *call) {
	if p.calls[c.key] == c {
		delete(p.calls, c.key)
	}
}

// run calls the plugin and caches its response.
func (p *plugin) run(ctx context.Context, a asker) ([]credentials.Entry, error) {
	request := execplugin.Request{Image: a.image, Annotations: a.annotations}
	if a.token != nil {
		token, err := a.token(ctx)
		if err != nil {
			return nil, err
		}
		request.Token = token
	}
	if err := p.atOnce.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer p.atOnce.Release(1)
	start := time.Now()
	answer, err := p.program.Ask(ctx, request)
	took := time.Since(start)
	p.metrics.PluginCalled(p.config.Name, took, err != nil)
	if err != nil {
		return nil, err
	}
	p.log.V(4).Info("Asked a credential provider", "image", a.image.Name(), "duration", took,
		"cacheKeyType", answer.Key, "credentials", len(answer.Entries))
	for _, problem := range answer.Problems {
		p.log.Info("A part of a credential provider's answer can't be used", "image", a.image.Name(),
			"message", problem)
	}
	for i := range answer.Entries {
		answer.Entries[i].Credential.Origin = a.origin
	}
	lasts := p.config.DefaultCacheDuration.Duration
	if answer.Duration != nil {
		lasts = *answer.Duration
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = answer.Key
	if lasts > 0 {
		p.cache.put(a.key(answer.Key), answer.Entries, lasts)
	}
	return answer.Entries, nil
}
