package clusterobjects

import (
	"context"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// entry is the state of one object, or of all Services, while pods use it.
type entry struct {
	known
	key   object.Key
	users int
	stop  context.CancelFunc
	// again triggers another read of an object that isn't watched at the moment.
	again wake.Slot
	// unsent says that the object was asked for after the last request was sent: the answer to that request may be too
	// old.
	unsent bool
	// asked is when a pod last asked for the object. until is when the answer expires; zero while the object is
	// watched.
	asked, until time.Time

	// object is the object, or err says that it doesn't exist; neither is set before the first answer. services are
	// all Services, by namespace and name.
	object   object.Object
	services map[string]map[string]*v1.Service
	err      error
	// restored says that the answer was read from disk (lastknown), not from the API server.
	restored bool
	// why is the reason why there is no answer.
	why string
}

// ask requests an answer to a request that is sent from now on. For a watched object any next answer counts: a watch
// repeats its requests by itself. The lock is held.
func (f *Finder) ask(e *entry) {
	e.known.ask()
	e.unsent = !f.watched(e.key.Kind)
	e.again.Wake()
}

// sending records that a request is about to be sent.
func (f *Finder) sending(e *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.unsent = false
	select {
	case <-e.again: // this request is the one that was asked for
	default:
	}
}

// has reports whether there ever was an answer.
func (e *entry) has() bool { return e.object != nil || e.services != nil || e.err != nil }

// resource is the API resource of a kind.
func resource(k object.Kind) apiclient.Resource {
	switch k {
	case object.ConfigMap:
		return apiclient.ConfigMaps
	case object.Secret:
		return apiclient.Secrets
	case object.Service:
		return apiclient.Services
	case object.ServiceAccount:
		return apiclient.ServiceAccounts
	case object.PersistentVolumeClaim:
		return apiclient.PersistentVolumeClaims
	case object.PersistentVolume:
		return apiclient.PersistentVolumes
	case object.CSIDriver:
		return apiclient.CSIDrivers
	case object.VolumeAttachment:
		return apiclient.VolumeAttachments
	default:
		return apiclient.RuntimeClasses
	}
}

// onlyGot reports whether a node may get objects of this kind but not watch them.
func onlyGot(k object.Kind) bool {
	return k == object.ServiceAccount || k == object.PersistentVolumeClaim || k == object.PersistentVolume ||
		k == object.VolumeAttachment
}

// watched reports whether objects of this kind are watched.
func (f *Finder) watched(k object.Kind) bool {
	return !onlyGot(k) && (k != object.ConfigMap && k != object.Secret ||
		f.conf.Strategy == v1beta1.WatchChangeDetectionStrategy)
}

const (
	// askedAnew is how long the answer to a get is valid for pods that ask again. immutable is how long an object
	// that can't change stays valid for other pods after its watch has ended.
	askedAnew = 10 * time.Second
	immutable = time.Minute
	// leastTTL is the shortest time between reads of one object, if it isn't watched.
	leastTTL = time.Second
	// An object that a pod can't use (an unbound claim, a volume that isn't attached, or a missing object) is read
	// again at intervals that grow from firstPoll (firstAttachPoll for a VolumeAttachment) to lastPoll. That ends when
	// no pod has asked for the object within interest; waiting pods ask every few minutes.
	firstPoll, lastPoll = 100 * time.Millisecond, 30 * time.Second
	firstAttachPoll     = time.Second
	interest            = 10 * time.Minute
)

// pollDelay is how long to wait after that many earlier polls: from half of an interval to all of it.
func pollDelay(k object.Kind, polls int) time.Duration {
	first := firstPoll
	if k == object.VolumeAttachment {
		first = firstAttachPoll
	}
	d := min(first<<min(polls, 16), lastPoll)
	return d/2 + rand.N(d/2)
}

// lifetime is how long an answer is valid.
func (f *Finder) lifetime(k object.Kind) time.Duration {
	switch {
	case f.watched(k):
		return immutable
	case onlyGot(k):
		return askedAnew
	case f.conf.Strategy == v1beta1.GetChangeDetectionStrategy:
		return leastTTL
	default:
		return max(f.conf.TTL(), leastTTL)
	}
}

// entry returns the state of an object for a pod, which becomes a user of it. The lock is held.
func (f *Finder) entry(u *user, k object.Key) (*entry, error) {
	if u.gone {
		return nil, &object.Unknown{Key: k, Why: "the pod has ended"}
	}
	e := f.entries[k]
	if e == nil {
		e = &entry{key: k, again: wake.NewSlot()}
		f.ask(e)
		f.entries[k] = e
		f.follow(e)
	}
	now := time.Now()
	if e.asking && onlyGot(k.Kind) && !e.asked.IsZero() && now.Sub(e.asked) > interest {
		e.again.Wake() // failed reads aren't repeated after interest without a request
	}
	e.asked = now
	_, used := u.of[&e.known]
	if !used {
		e.users++
		u.of[&e.known] = func() { f.release(e) }
		f.conf.Known.Asks(u.uid, k)
		f.keep(e)
	}
	expired := !e.until.IsZero() && now.After(e.until)
	if !e.asking && (expired && (!used || !f.watched(k.Kind)) || !used && onlyGot(k.Kind)) {
		f.ask(e)
	}
	if e.asking && !e.has() && f.conf.Known.Away() {
		f.restore(e)
	}
	if e.asking && !e.restored {
		why := e.why
		if why == "" {
			why = "the API server is being asked"
		}
		away := f.conf.Known.Away()
		if away {
			why += f.conf.Known.WhyUnknown(k)
		}
		return nil, &object.Unknown{Key: k, Why: why, Away: away}
	}
	return e, e.err
}

// keep stores an answer for times when the API server is unreachable. The lock is held.
func (f *Finder) keep(e *entry) {
	switch {
	case e.restored || !e.has():
	case e.key.Kind == object.Service:
		f.conf.Known.SetServices(e.services)
	default:
		f.conf.Known.SetObject(e.key, e.object)
	}
}

// restore sets an entry to the stored answer, if there is one, until the API server's answer arrives. The lock is
// held.
func (f *Finder) restore(e *entry) {
	if e.key.Kind == object.Service {
		e.services = f.conf.Known.Services()
		e.restored = e.services != nil
		return
	}
	stored, known := f.conf.Known.Object(e.key)
	switch {
	case !known:
		return
	case stored == nil:
		e.err = notFound(e.key)
	default:
		e.object = stored
	}
	e.restored = true
}

// release removes a user from an entry. It drops an entry that has no user any more. The lock is held.
func (f *Finder) release(e *entry) {
	if e.users--; e.users > 0 {
		return
	}
	e.stop()
	delete(f.entries, e.key)
}

// follow starts to keep an entry up to date. The lock is held.
func (f *Finder) follow(e *entry) {
	read := f.get
	if f.watched(e.key.Kind) {
		read = f.watch
	}
	e.stop = f.spawn(func(ctx context.Context) { read(ctx, e) })
}

// watch follows an object by its own watch. The watch of an immutable object ends once the object was received.
func (f *Finder) watch(ctx context.Context, e *entry) {
	chosen := apiclient.Selectors{Fields: fields.OneTermEqualSelector("metadata.name", e.key.Name).String()}
	if e.key.Kind == object.Service {
		chosen.Fields = fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String()
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		once, end := context.WithCancel(ctx)
		s := &sight{finder: f, entry: e, end: end}
		f.sending(e)
		f.conf.API.Watch(once, resource(e.key.Kind), e.key.Namespace, chosen, s)
		end()
		switch {
		case s.refused != nil:
			pause(ctx, time.After(delay(s.refused, failures)))
			continue
		case s.immutable:
			pause(ctx, e.again)
		}
		failures = -1
	}
}

// sight receives the results of an entry's watch.
type sight struct {
	finder    *Finder
	entry     *entry
	end       context.CancelFunc
	immutable bool
	// refused is why the API server forbids the watch, for now.
	refused error
}

func (s *sight) Listed(list apiclient.List) {
	if s.entry.key.Kind == object.Service {
		all := map[string]map[string]*v1.Service{}
		for _, o := range list.Objects {
			if service, ok := o.(*v1.Service); ok {
				put(all, service)
			}
		}
		s.finder.record(s.entry, func(e *entry) {
			before := e.services
			if before == nil && len(list.Malformed) > 0 {
				before = s.finder.conf.Known.Services()
			}
			carry(all, before, list.Malformed)
			e.services = all
		})
		return
	}
	for _, o := range list.Objects {
		s.set(o)
	}
	for _, m := range list.Malformed {
		s.Malformed(m)
	}
	if len(list.Objects)+len(list.Malformed) == 0 {
		s.missing()
	}
}

// carry copies Services from the map before to the map all: the Services whose new state can't be decoded. If one of
// these can't be identified, carry copies every Service that wasn't listed.
func carry(all, before map[string]map[string]*v1.Service, malformed []apiclient.Malformed) {
	for _, m := range malformed {
		if !m.Identified() {
			for namespace, services := range before {
				for name := range services {
					carryOne(all, before, namespace, name)
				}
			}
			return
		}
		carryOne(all, before, m.Namespace, m.Name)
	}
}

func carryOne(all, before map[string]map[string]*v1.Service, namespace, name string) {
	known := before[namespace][name]
	if known == nil || all[namespace][name] != nil {
		return
	}
	if all[namespace] == nil {
		all[namespace] = map[string]*v1.Service{}
	}
	all[namespace][name] = known
}

// dropService removes a deleted Service. The lock is held.
func (s *sight) dropService(namespace, name string) {
	delete(s.entry.services[namespace], name)
	s.finder.conf.Known.DropService(namespace, name)
}

// Malformed keeps the earlier state of an object that can't be decoded, unless it was deleted. A malformed Service
// doesn't count as a failure, because the other Services matter more.
func (s *sight) Malformed(m apiclient.Malformed) {
	switch {
	case s.entry.key.Kind == object.Service:
		if m.Deleted {
			s.finder.mu.Lock()
			defer s.finder.mu.Unlock()
			s.dropService(m.Namespace, m.Name)
		}
	case m.Deleted:
		s.missing()
	default:
		s.finder.failed(s.entry, m)
	}
}

func (s *sight) Changed(kind watch.EventType, o runtime.Object) {
	switch {
	case s.entry.key.Kind == object.Service:
		s.finder.mu.Lock()
		defer s.finder.mu.Unlock() // no pod is woken: only containers that start afterwards use the change
		service, ok := o.(*v1.Service)
		switch {
		case !ok:
		case kind == watch.Deleted:
			s.dropService(service.Namespace, service.Name)
		default:
			reduced := put(s.entry.services, service)
			s.finder.conf.Known.SetObject(
				object.Key{Kind: object.Service, Namespace: reduced.Namespace, Name: reduced.Name}, reduced)
		}
	case kind == watch.Deleted:
		s.missing()
	default:
		s.set(o)
	}
}

func (s *sight) Away(err error) {
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		s.refused = err
		s.end() // watch then retries sooner than the client would
		fallthrough
	default:
		s.finder.failed(s.entry, err)
	}
}

func (s *sight) missing() {
	s.finder.record(s.entry, func(e *entry) { e.object, e.err = nil, notFound(e.key) })
}

func (s *sight) set(o runtime.Object) {
	got, ok := o.(object.Object)
	if !ok {
		return
	}
	var until time.Time
	if s.immutable = isImmutable(o); s.immutable {
		until = time.Now().Add(immutable)
		s.end()
	}
	s.finder.record(s.entry, func(e *entry) { e.object, e.err, e.until = got, nil, until })
}

func isImmutable(o runtime.Object) bool {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return o.Immutable != nil && *o.Immutable
	case *v1.Secret:
		return o.Immutable != nil && *o.Immutable
	}
	return false
}

// get follows an object by repeated reads.
func (f *Finder) get(ctx context.Context, e *entry) {
	for failures, polls, polled := 0, 0, false; ctx.Err() == nil; {
		f.awaitAttached(ctx, e, polled)
		f.sending(e)
		got := e.key.Kind.New()
		err := f.conf.API.Get(ctx, apiclient.Calls, resource(e.key.Kind), e.key.Namespace, e.key.Name, got)
		if ctx.Err() != nil {
			return
		}
		var next <-chan time.Time
		if err != nil && !apierrors.IsNotFound(err) {
			wait := delay(err, failures)
			if e.key.Kind == object.VolumeAttachment && apierrors.IsForbidden(err) { // also if it doesn't exist
				wait = pollDelay(e.key.Kind, failures)
			}
			failures++
			f.failed(e, err)
			if !onlyGot(e.key.Kind) || f.interesting(e) {
				next = time.After(wait)
			}
		} else {
			failures = 0
			until := time.Now().Add(f.lifetime(e.key.Kind))
			f.record(e, func(e *entry) {
				if e.object, e.err, e.until = got, nil, until; err != nil {
					e.object, e.err = nil, notFound(e.key)
				}
			})
			switch {
			case !onlyGot(e.key.Kind):
				next = time.After(max(f.period(), leastTTL))
			case f.waitedFor(e):
				next = time.After(pollDelay(e.key.Kind, polls))
				polls++
			default:
				polls = 0
			}
		}
		select {
		case <-ctx.Done():
		case <-next:
			polled = true
		case <-e.again:
			polled = false
		}
	}
}

// period is the interval at which objects that aren't watched are read.
func (f *Finder) period() time.Duration {
	if f.conf.Strategy == v1beta1.GetChangeDetectionStrategy {
		return f.conf.Period
	}
	return max(f.conf.Period, f.conf.TTL())
}

// interesting reports whether a pod asked for an object within interest.
func (f *Finder) interesting(e *entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(e.asked) < interest
}

// waitedFor reports whether a pod asked within interest for an object that it can't use: the object doesn't exist, is
// an unbound claim, or a VolumeAttachment that isn't attached or is being deleted.
func (f *Finder) waitedFor(e *entry) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	usable := e.object != nil
	switch o := e.object.(type) {
	case *v1.PersistentVolumeClaim:
		usable = o.Status.Phase == v1.ClaimBound
	case *storagev1.VolumeAttachment:
		usable = o.Status.Attached && o.DeletionTimestamp == nil
	}
	return !usable && time.Since(e.asked) < interest
}

// record records an answer, and wakes the object's users if it has changed. If they have asked again since the request
// was sent, they wait for the answer to the next one.
func (f *Finder) record(e *entry, change func(*entry)) {
	f.mu.Lock()
	before, had := e.object, e.has()
	change(e)
	if e.object != nil {
		e.object.SetManagedFields(nil)
	}
	changed := e.asking || !had || (before == nil) != (e.object == nil) ||
		before != nil && (before.GetUID() != e.object.GetUID() ||
			before.GetResourceVersion() != e.object.GetResourceVersion() ||
			!equality.Semantic.DeepEqual(before, e.object)) // a restored store reuses versions
	e.asking, e.restored, e.why = e.unsent, false, ""
	f.keep(e)
	if changed = changed && !e.unsent; changed {
		e.at = time.Now()
	}
	f.mu.Unlock()
	if changed {
		f.notify(e.key.Object())
	}
}

// failed records that there is no answer for now. An earlier answer stays valid, except a VolumeAttachment:
// its volume may have been detached. Pods that wait for an answer get the reason.
func (f *Finder) failed(e *entry, err error) {
	f.mu.Lock()
	awaited := e.asking
	e.why = err.Error()
	if e.has() && e.key.Kind != object.VolumeAttachment {
		e.asking = e.unsent
		if e.at = time.Now(); !e.until.IsZero() {
			e.until = e.at.Add(leastTTL)
		}
	}
	f.mu.Unlock()
	if awaited {
		f.notify(e.key.Object())
	}
}

// The API server's authorizer learns a little later than the node which objects pods refer to.
const firstLag, lastLag, lags = 50 * time.Millisecond, 2 * time.Second, 20

// delay is how long to wait after a failure. It is random, so that nodes don't retry all at once.
func delay(err error, failures int) time.Duration {
	if apierrors.IsForbidden(err) && failures < lags {
		d := min(firstLag<<failures, lastLag)
		return d/2 + rand.N(d/2)
	}
	_, after := apiclient.Retry(err, failures)
	return max(after, firstLag)
}

func pause[T any](ctx context.Context, until <-chan T) {
	select {
	case <-ctx.Done():
	case <-until:
	}
}

func notFound(k object.Key) error {
	group := schema.GroupResource{Group: k.Kind.GroupVersionKind().Group, Resource: resource(k.Kind).String()}
	return apierrors.NewNotFound(group, k.Name)
}

// put adds a Service to the map all, reduced to the fields that environment variables are made from.
func put(all map[string]map[string]*v1.Service, s *v1.Service) *v1.Service {
	reduced := &v1.Service{}
	reduced.Namespace, reduced.Name = s.Namespace, s.Name
	reduced.Spec.Type, reduced.Spec.ClusterIP = s.Spec.Type, s.Spec.ClusterIP
	for _, p := range s.Spec.Ports {
		reduced.Spec.Ports = append(reduced.Spec.Ports,
			v1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
	}
	if all[s.Namespace] == nil {
		all[s.Namespace] = map[string]*v1.Service{}
	}
	all[s.Namespace][s.Name] = reduced
	return reduced
}
