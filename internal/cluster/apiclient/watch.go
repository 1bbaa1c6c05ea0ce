package apiclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// Selectors choose objects, in the API's syntax; empty ones choose all.
type Selectors struct{ Fields, Labels string }

// Sight is told what the server has. Its methods are called one after the other.
type Sight interface {
	// Listed says that these are all chosen objects, as of a resource version. It comes first, and again when changes may have
	// been missed: what isn't in it is gone.
	Listed(objects []kruntime.Object, version string)
	// Changed tells an object that was added, modified or deleted since.
	Changed(kind watch.EventType, object kruntime.Object)
	// Away says that changes aren't seen any more, and why; nil that they are again, those of the time between included. It
	// is called when the reason changes, not for each try.
	Away(err error)
}

// Single tells the states of a watch that chooses one object: the object as it is, or the zero T if there is none. While changes aren't
// seen it tells nothing: what is known stays.
type Single[T kruntime.Object] func(T)

// Listed implements Sight.
func (s Single[T]) Listed(all []kruntime.Object, _ string) {
	if len(all) == 0 {
		var none T
		s(none)
	}
	for _, o := range all {
		s.Changed(watch.Modified, o)
	}
}

// Changed implements Sight.
func (s Single[T]) Changed(kind watch.EventType, o kruntime.Object) {
	now, ok := o.(T)
	if kind == watch.Deleted || !ok {
		var none T
		now = none
	}
	s(now)
}

// Away implements Sight.
func (s Single[T]) Away(error) {}

const (
	// answerLimit bounds how long a watch waits until the server begins to answer, watchTime how long one lasts, in
	// seconds; up to twice that.
	answerLimit = 30 * time.Second
	watchTime   = 300
	// shortWatch is how long a watch lasts at least, unless something is wrong.
	shortWatch = time.Second
	// listAgain is after how long all is listed again when a watch ends, up to twice that: should something have been missed all the same, it is
	// missed for that long.
	listAgain = time.Hour
)

var errShortWatch = errors.New("it ends watches as soon as they have begun")

// Watch tells what objects there are and how they change, until ctx ends. The way back to a server that was away is found as
// soon as any call finds it.
func (c *Client) Watch(ctx context.Context, r Resource, namespace string, chosen Selectors, to Sight) {
	woken, stop := c.Subscribe()
	defer stop()
	w := &watcher{client: c, resource: r, namespace: namespace, chosen: chosen, to: to, woken: woken}
	for failures := 0; ctx.Err() == nil; {
		sessions := c.sessionCount()
		lasted, err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if lasted {
			failures = 0
		}
		if lasted && err == nil || errors.Is(err, errReplaced) || errors.Is(err, errOtherStore) {
			continue
		}
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
		switch {
		case expired:
			w.version = ""
		case err != nil:
			if lost(err) {
				// The server that answers next may have a store that was restored from a backup. Of a version that is still to come there it would
				// tell nothing, for a while or ever (kubernetes/kubernetes#131115), so all is listed again.
				w.version = ""
			}
			w.away(err)
		}
		if !expired || failures > 0 {
			_, after := Retry(cmp.Or(err, errShortWatch), failures)
			w.pause(ctx, after, sessions)
		}
		failures++
	}
}

type watcher struct {
	client    *Client
	resource  Resource
	namespace string
	chosen    Selectors
	to        Sight
	woken     <-chan struct{}
	// version is up to which everything was told; empty if all has to be listed.
	version string
	// again is when all is to be listed again, unless store ends before.
	again time.Time
	store context.Context
	// absent is what Away was told last.
	absent string
}

// once lists if that is needed, and watches until the watch ends. lasted says that it wasn't just a moment.
func (w *watcher) once(ctx context.Context) (lasted bool, err error) {
	if w.version == "" || time.Now().After(w.again) || w.store.Err() != nil {
		if err := w.list(ctx); err != nil {
			return false, err
		}
	}
	began := time.Now()
	events, err := w.follow(ctx)
	lasted = time.Since(began) >= shortWatch
	if err == nil && !lasted && events == 0 {
		err = errShortWatch
	}
	return lasted, err
}

// request asks for the chosen objects.
func (chosen Selectors) request(q *rest.Request, r Resource, namespace string) *rest.Request {
	q = q.NamespaceIfScoped(namespace, namespace != "").Resource(r.String())
	if chosen.Fields != "" {
		q = q.Param("fieldSelector", chosen.Fields)
	}
	if chosen.Labels != "" {
		q = q.Param("labelSelector", chosen.Labels)
	}
	return q
}

// list asks for all objects as they are now: what a cache of the server has may be older than what was told.
func (w *watcher) list(ctx context.Context) error {
	store := w.client.store.now() // before it is asked
	into := w.resource.described().list()
	if err := w.client.List(ctx, Calls, w.resource, w.namespace, w.chosen, into); err != nil {
		return err
	}
	list, err := meta.ListAccessor(into)
	if err != nil {
		return err
	}
	// Each has its memory, so that one that stays doesn't keep all.
	objects, err := meta.ExtractListWithAlloc(into)
	if err != nil {
		return err
	}
	w.version, w.store, w.again = list.GetResourceVersion(), store, time.Now().Add(listAgain+rand.N(listAgain))
	w.to.Listed(objects, w.version)
	w.away(nil)
	return nil
}

// follow watches from the version on, and returns how many events there were.
func (w *watcher) follow(ctx context.Context) (events int, err error) {
	c := w.client
	s, err := c.session(ctx)
	if err != nil {
		return 0, err
	}
	defer s.calls.Done()
	if err := c.wait(ctx, Calls, "GET", s); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.replaced, func() { cancel(errReplaced) })()
	defer context.AfterFunc(w.store, func() { cancel(errOtherStore) })()
	late := time.AfterFunc(answerLimit, func() { cancel(errSilent) })
	defer late.Stop()
	quietly, o := withOutcome(klog.NewContext(ctx, logr.Discard()))
	stream, err := w.chosen.request(rest.NewRequest(s.classes[Calls].rest[w.resource]).Verb("GET"), w.resource, w.namespace).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", w.version).
		Param("timeoutSeconds", strconv.Itoa(watchTime+rand.N(watchTime))).MaxRetries(0).Watch(quietly)
	if err == nil {
		defer func() {
			stream.Stop()
			for range stream.ResultChan() { // until its goroutine has ended
			}
		}()
	}
	silent := !late.Stop()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errReplaced), errors.Is(cause, errOtherStore):
		return 0, cause
	case silent:
		o.err, err = errSilent, errSilent
	case err == nil && o.err != nil:
		err = o.err // the library takes some errors for a watch that ends at once
	}
	if err = c.judge(ctx, Calls, s, o, err); err != nil {
		return 0, err
	}
	events, err = w.hear(stream.ResultChan())
	if cause := context.Cause(ctx); cause != nil {
		return events, cause
	}
	if err != nil {
		err = diagnose(err, &outcome{structured: true, code: codeOf(err)}, s.id)
	}
	return events, err
}

// hear tells what a watch tells, until it ends.
func (w *watcher) hear(told <-chan watch.Event) (events int, err error) {
	lasts := time.NewTimer(shortWatch)
	defer lasts.Stop()
	for {
		select {
		case <-lasts.C:
			w.away(nil)
		case e, ok := <-told:
			if !ok {
				return events, nil
			}
			if e.Type == watch.Error {
				return events, apierrors.FromObject(e.Object)
			}
			w.away(nil)
			if err := w.take(e); err != nil {
				return events, err
			}
			events++
		}
	}
}

func (w *watcher) take(e watch.Event) error {
	object, err := meta.Accessor(e.Object)
	if err != nil {
		return fmt.Errorf("what a watch of %s tells: %w", w.resource, err)
	}
	if e.Type != watch.Bookmark {
		w.to.Changed(e.Type, e.Object)
	}
	before := w.version
	w.version = object.GetResourceVersion()
	if order, err := resourceversion.CompareResourceVersion(w.version, before); err == nil && order < 0 {
		return apierrors.NewResourceExpired("the server went back from version " + before + " to " + w.version)
	}
	return nil
}

// away tells a reason that differs from the last.
func (w *watcher) away(err error) {
	text := ""
	if err != nil {
		text = err.Error()
		code := "<error>"
		if n := codeOf(err); n != 0 {
			code = strconv.Itoa(n)
		}
		w.client.conf.Meter.Retried(code, http.MethodGet, w.client.host())
	}
	if text != w.absent {
		w.absent = text
		w.to.Away(err)
	}
}

// pause waits that long, or until there is a reason to try sooner: the server answers others again, or there is another
// session than the one that failed.
func (w *watcher) pause(ctx context.Context, after time.Duration, sessions int) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	for woken := w.woken; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-woken:
			if ok, _, _ := w.client.Reached(); ok || w.client.sessionCount() != sessions {
				woken = nil
				timer.Reset(min(after, backoff(firstDelay, 0)))
			}
		}
	}
}
