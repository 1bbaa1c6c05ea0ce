package apiclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
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

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Selectors choose objects, in the API's syntax; empty ones choose all.
type Selectors struct{ Fields, Labels string }

// Sight receives the results of a watch. Its methods are called one after the other.
type Sight interface {
	// Listed passes all chosen objects. It is called first, and again when changes may have been missed: any other
	// object is gone.
	Listed(List)
	// Changed passes an object that was added, modified or deleted after the list.
	Changed(kind watch.EventType, object kruntime.Object)
	// Malformed passes a changed object that can't be decoded.
	Malformed(Malformed)
	// Away passes the reason why changes aren't received any more, or nil once they are received again, including
	// those in between. It is called when the reason changes, not for each try.
	Away(err error)
}

// Single is a Sight of one object. It is called with each state of the object, or the zero T if there is none. It
// isn't called while changes aren't received.
type Single[T kruntime.Object] func(T)

// Listed implements Sight.
func (s Single[T]) Listed(all List) {
	if len(all.Objects)+len(all.Malformed) == 0 {
		var none T
		s(none)
	}
	for _, o := range all.Objects {
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

// Malformed implements Sight.
func (s Single[T]) Malformed(m Malformed) {
	if m.Deleted {
		var none T
		s(none)
	}
}

// Away implements Sight.
func (s Single[T]) Away(error) {}

const (
	// answerLimit is how long a watch waits for the start of the server's answer. watchTime is the shortest duration of
	// a watch that is requested, in seconds; each request has a random duration of up to twice that.
	answerLimit = 30 * time.Second
	// recoveredLimit is how long a call waits for its answer after the server has recovered.
	recoveredLimit = 3 * time.Second
	watchTime      = 300
	// overdue is how long after the requested end the client ends a watch that the server leaves open. A proxy, or a
	// server whose watch is stuck, may leave a watch open forever although it answers all other calls.
	overdue = 30 * time.Second
	// bookmarkGap is how long a watch may be silent if the server sends bookmarks. An API server sends one a minute,
	// but the API promises none.
	bookmarkGap = 3 * time.Minute
	// shortWatch is the shortest duration of a watch that works.
	shortWatch = time.Second
	// listAgain is the age from which a list is repeated when a watch ends. The age is random, at most twice that. It
	// bounds how long a missed change stays unnoticed.
	listAgain = time.Hour
)

var (
	errShortWatch = errors.New("it ends watches as soon as they have begun")
	errOverdue    = errors.New("it didn't end the watch when its time was over")
	errMute       = errors.New("the watch tells nothing any more, not even bookmarks")
)

// Watch passes the chosen objects that exist, and their changes, to a Sight until ctx ends. After an outage it
// resumes as soon as any call succeeds.
func (c *Client) Watch(ctx context.Context, r Resource, namespace string, chosen Selectors, to Sight) {
	woken, stop := c.Recovered()
	defer stop()
	w := &watcher{client: c, resource: r, namespace: namespace, chosen: chosen, to: to, woken: woken}
	for ctx.Err() == nil {
		sessions := c.sessionCount()
		lasted, err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if lasted {
			w.backoff.Succeeded()
		}
		if errors.Is(err, errMute) {
			w.version, w.bookmarked = "", false
			continue
		}
		if lasted && err == nil || errors.Is(err, errReplaced) || errors.Is(err, errOtherStore) {
			continue
		}
		expired := apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
			apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
		switch {
		case expired:
			w.version = ""
		case err != nil:
			if lost(err) || unread(err) {
				// The server that answers next may have a store that was restored from a backup. If that store hasn't
				// reached this version yet, a watch would miss changes, for a while or forever
				// (kubernetes/kubernetes#131115). So everything is listed again, including objects that the watch
				// couldn't pass.
				w.version = ""
			}
			w.away(err)
		}
		failures := w.backoff.Failures()
		w.backoff.Failed(cmp.Or(err, errShortWatch))
		if w.hurried {
			w.backoff.Recovered()
		}
		if !expired || failures > 0 {
			w.pause(ctx, sessions)
		}
	}
}

// unread reports whether a watch failed at an event that a watch from the same version would receive again, or may
// have missed events.
func unread(err error) bool {
	var large *tooLarge
	var garbled *garbledError
	return errors.As(err, &large) || errors.As(err, &garbled) || errors.Is(err, errOverdue)
}

// garbledError is an event that can't be decoded, not even the identity of its object.
type garbledError struct{ error }

func (e *garbledError) Unwrap() error { return e.error }

type watcher struct {
	client    *Client
	resource  Resource
	namespace string
	chosen    Selectors
	to        Sight
	woken     <-chan struct{}
	// version is the resource version up to which all changes were passed; empty if a list is needed.
	version string
	// again is when to list again. If the context store ends earlier, the list is repeated then.
	again time.Time
	store context.Context
	// absent is the reason that Away received last.
	absent string
	// backoff schedules lists and watches.
	backoff Backoff
	// hurried says that the server recovered while the last call waited for its answer.
	hurried bool
	// patient says that calls get their full time although the server has recovered. It is set when a call was ended
	// early, until a watch is answered: a server that recovers again and again may be too busy to answer within a
	// shorter time.
	patient bool
	// bookmarked says that the server sends bookmarks.
	bookmarked bool
	// refused are the logged errors of malformed objects, by the objects' names.
	refused map[string]string
}

// once lists if necessary, and watches until the watch ends. lasted says that the server kept it open for shortWatch
// at least.
func (w *watcher) once(ctx context.Context) (lasted bool, err error) {
	w.hurried = false
	if w.version == "" || time.Now().After(w.again) || w.store.Err() != nil {
		if err := w.list(ctx); err != nil {
			return false, err
		}
	}
	events, opened, err := w.follow(ctx)
	lasted = !opened.IsZero() && time.Since(opened) >= shortWatch
	if err == nil && !lasted && events == 0 {
		err = errShortWatch
	}
	return lasted, err
}

// request adds the resource and the selectors to a request.
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

// list lists all objects in their newest state. The server's cache isn't used: it may be older than the changes that
// were passed.
func (w *watcher) list(ctx context.Context) error {
	store := w.client.store.now() // before the call
	calling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answered := func() {}
	calling = whenSent(calling, func() { answered = w.hurry(cancel) })
	all, err := w.client.List(calling, w.resource, w.namespace, w.chosen)
	answered()
	if err != nil {
		return err
	}
	w.hurried = false
	w.version, w.store, w.again = all.Version, store, time.Now().Add(listAgain+rand.N(listAgain))
	refused := w.refused
	w.refused = nil
	for _, m := range all.Malformed {
		w.refuse(m, refused)
	}
	w.to.Listed(all)
	w.away(nil)
	return nil
}

// follow watches from w.version on. It returns the number of events, and when the server answered; zero if it didn't.
func (w *watcher) follow(ctx context.Context) (events int, opened time.Time, err error) {
	c := w.client
	s, err := c.session(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	defer s.calls.Done()
	if err := c.wait(ctx, Calls, "GET", s); err != nil {
		return 0, time.Time{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.replaced, func() { cancel(errReplaced) })()
	defer context.AfterFunc(w.store, func() { cancel(errOtherStore) })()
	late := time.AfterFunc(answerLimit, func() { cancel(errUnresponsive) })
	answered := w.hurry(cancel)
	quietly, o := withOutcome(klog.NewContext(ctx, logr.Discard()), 0)
	lasts := watchTime + rand.N(watchTime)
	body, err := w.chosen.request(rest.NewRequest(s.classes[Calls].rest[w.resource]).Verb("GET"), w.resource,
		w.namespace).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", w.version).
		Param("timeoutSeconds", strconv.Itoa(lasts)).MaxRetries(0).Stream(quietly)
	if err == nil {
		defer body.Close()
	}
	late.Stop()
	answered()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errReplaced), errors.Is(cause, errOtherStore):
		return 0, time.Time{}, cause
	case errors.Is(cause, errUnresponsive):
		err = cause
	}
	if err = c.judge(ctx, Calls, s, o, err); err != nil {
		return 0, time.Time{}, err
	}
	in, err := c.newStream(w.resource, o.contentType, body, &o.lost)
	if err != nil {
		return 0, time.Time{}, diagnose(&garbledError{err}, o, s.id)
	}
	opened = time.Now()
	w.hurried, w.patient = false, false
	end := time.AfterFunc(pod.Seconds(lasts)+overdue, func() { cancel(errOverdue) })
	defer end.Stop()
	events, err = w.hear(ctx, in, cancel)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errOverdue):
		return events, opened, &Error{Server: s.id.server.String(), Err: cause,
			Advice: "check the network and proxies between this node and the API server", trouble: own}
	case cause != nil:
		return events, opened, cause
	case err == nil:
		return events, opened, nil
	case codeOf(err) == 0:
		err = &garbledError{err}
	}
	return events, opened, diagnose(err,
		&outcome{asked: true, structured: true, code: cmp.Or(codeOf(err), http.StatusOK)}, s.id)
}

// hurry ends a call that isn't answered within recoveredLimit after the server has recovered. The caller has to call
// answered when the call has ended, or was answered.
func (w *watcher) hurry(cancel context.CancelCauseFunc) (answered func()) {
	select {
	case <-w.woken: // drop a recovery before the call
	default:
	}
	over := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-over:
			return
		case <-w.woken:
		}
		w.hurried = true
		if w.patient {
			return
		}
		select {
		case <-over:
		case <-time.After(recoveredLimit):
			w.patient = true
			cancel(errUnresponsive)
		}
	})
	return func() {
		close(over)
		waiting.Wait()
	}
}

// hear passes the events of a watch, until it ends or is silent for too long.
func (w *watcher) hear(ctx context.Context, in *stream, cancel context.CancelCauseFunc) (events int, err error) {
	read := make(chan watchEvent)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer in.body.Close() // ends a pending read
	readCtx, stop := context.WithCancel(ctx)
	defer stop()
	reading.Go(func() {
		defer close(read)
		for {
			t := in.next()
			select {
			case read <- t:
			case <-readCtx.Done():
				return
			}
			if t.err != nil {
				return
			}
		}
	})
	lasts := time.NewTimer(shortWatch)
	defer lasts.Stop()
	mute := time.AfterFunc(bookmarkGap, func() { cancel(errMute) })
	defer mute.Stop()
	if !w.bookmarked {
		mute.Stop()
	}
	for {
		select {
		case <-lasts.C:
			w.away(nil)
		case t, ok := <-read:
			switch {
			case !ok:
				return events, nil
			case errors.Is(t.err, io.EOF):
				return events, nil
			case t.err != nil:
				return events, t.err
			case t.kind == watch.Error:
				return events, apierrors.FromObject(t.object)
			}
			w.away(nil)
			w.bookmarked = w.bookmarked || t.kind == watch.Bookmark
			if w.bookmarked {
				mute.Reset(bookmarkGap)
			}
			if err := w.process(t); err != nil {
				return events, err
			}
			events++
		}
	}
}

func (w *watcher) process(t watchEvent) error {
	before := w.version
	if m := t.malformed; m != nil {
		w.refuse(*m, w.refused)
		w.to.Malformed(*m)
		w.version = cmp.Or(m.version, before)
	} else {
		object, err := meta.Accessor(t.object)
		if err != nil {
			return fmt.Errorf("watch of %s: invalid object: %w", w.resource, err)
		}
		if t.kind != watch.Bookmark {
			w.to.Changed(t.kind, t.object)
		}
		w.version = object.GetResourceVersion()
	}
	if order, err := resourceversion.CompareResourceVersion(w.version, before); err == nil && order < 0 {
		return apierrors.NewResourceExpired("the server went back from version " + before + " to " + w.version)
	}
	return nil
}

// refuse logs an object that can't be decoded, once for each error. The map were has the errors that were logged
// before.
func (w *watcher) refuse(m Malformed, were map[string]string) {
	key, text := m.Namespace+"/"+m.Name, m.Error()
	if were[key] != text {
		w.client.conf.Log.Error(m,
			"Failed to decode an object of the API server; using its last valid version",
			"object", klog.KRef(m.Namespace, m.Name))
	}
	if w.refused == nil || len(w.refused) > maxRefused {
		w.refused = map[string]string{}
	}
	w.refused[key] = text
}

// maxRefused bounds the memory of logged errors.
const maxRefused = 1000

// away passes a reason that differs from the last one.
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

// pause waits until the next try is due, or until another session has replaced the one that failed.
func (w *watcher) pause(ctx context.Context, sessions int) {
	timer := time.NewTimer(time.Until(w.backoff.Due()))
	defer timer.Stop()
	soon := func() { timer.Reset(min(time.Until(w.backoff.Due()), backoff(firstDelay, 0))) }
	woken := w.woken
	if w.client.sessionCount() != sessions { // the failed call may have used up the wakeup
		woken = nil
		soon()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-woken:
			if w.client.sessionCount() == sessions {
				w.backoff.Recovered()
				timer.Reset(time.Until(w.backoff.Due()))
				continue
			}
			woken = nil
			soon()
		}
	}
}
