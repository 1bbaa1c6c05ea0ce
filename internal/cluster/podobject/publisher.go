package podobject

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// Statuses are what this node says of pods.
type Statuses interface {
	Get(types.UID) *podstatus.Entry
	Named(namespace, name string) []*podstatus.Entry
	// Follow returns what is woken for the UIDs of pods whose entry changed or went.
	Follow() (changed *wake.Keyed[types.UID], stop func())
}

// Refusals are the pods of the API server that this node doesn't run.
type Refusals interface {
	Refused() []pod.Refusal
	Subscribe() (changed <-chan struct{}, stop func())
}

// PublisherConfig says what a Publisher works with.
type PublisherConfig struct {
	Cache    *Cache
	Statuses Statuses
	Refusals Refusals
	// Reached is received from when the API server has recovered: what failed by its fault is tried soon
	// (apiclient.Client.Recovered).
	Reached <-chan struct{}
	Log     logr.Logger
}

// Publisher tells the API server how this node's pods are, and removes the objects of those that have ended.
type Publisher struct {
	conf  PublisherConfig
	equal conversion.Equalities

	// The rest is Run's.
	pods map[types.UID]*published
	// waiting are those that something is due for, later or as soon as a call can be made.
	waiting  map[types.UID]step
	refused  map[types.UID]pod.Refusal
	inFlight int
	results  chan result
}

// published is what was done about one pod's object.
type published struct {
	history
	// busy says that a call is under way: the next one goes by what it is answered.
	busy bool
	// said is the error that was logged last.
	said string
}

// result is the end of a call.
type result struct {
	uid  types.UID
	step step
	api  *v1.Pod
	// answer is the object as it is after the call; nil if that isn't known.
	answer *v1.Pod
	err    error
}

// NewPublisher returns a publisher. It does nothing before Run.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{conf: c, equal: statusEquality(), pods: map[types.UID]*published{}, waiting: map[types.UID]step{},
		refused: map[types.UID]pod.Refusal{}, results: make(chan result)}
}

// callsAtOnce is how many calls are under way at most: one slow answer must not hold up all, and a server that comes
// back must not be met by everybody at once.
const callsAtOnce = 10

// Run tells what there is to tell until ctx ends. What the API server doesn't take is tried again. The error is nil.
func (p *Publisher) Run(ctx context.Context) error {
	statuses, stopStatuses := p.conf.Statuses.Follow()
	defer stopStatuses()
	objects, stopObjects := p.conf.Cache.Subscribe()
	defer stopObjects()
	refusals, stopRefusals := p.conf.Refusals.Subscribe()
	defer stopRefusals()
	calling, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	p.takeRefusals()
	pods, _ := p.conf.Cache.Pods()
	mirrors, _ := p.conf.Cache.Mirrors()
	for _, o := range slices.Concat(pods, mirrors) {
		p.look(o.UID)
	}
	for {
		next := p.begin(calling, &calls)
		var due <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			for uid := range p.waiting {
				p.look(uid)
			}
		case <-statuses.Woken():
			for _, uid := range statuses.Take() {
				p.look(p.objectOf(uid))
			}
		case <-objects.Woken():
			for _, uid := range objects.Take() {
				p.look(uid)
			}
		case <-refusals:
			p.takeRefusals()
		case <-p.conf.Reached:
			for uid := range p.waiting {
				if s := p.pods[uid]; s != nil {
					s.backoff.Recovered()
				}
				p.look(uid)
			}
		case r := <-p.results:
			p.inFlight--
			p.take(r)
			p.look(r.uid)
		}
	}
}

// takeRefusals reads which pods aren't run.
func (p *Publisher) takeRefusals() {
	now := map[types.UID]pod.Refusal{}
	for _, r := range p.conf.Refusals.Refused() {
		now[r.UID] = r
	}
	was := p.refused
	p.refused = now
	for _, list := range []map[types.UID]pod.Refusal{was, now} {
		for uid := range list {
			if was[uid] != now[uid] {
				p.look(uid)
			}
		}
	}
}

// look finds out what is due for a pod.
func (p *Publisher) look(uid types.UID) {
	delete(p.waiting, uid)
	api := p.conf.Cache.Get(uid)
	if api == nil {
		if s := p.pods[uid]; s != nil && !s.busy {
			delete(p.pods, uid)
		}
		return
	}
	s := p.pods[uid]
	if s == nil {
		s = &published{}
		p.pods[uid] = s
	}
	if s.busy {
		return
	}
	if next := plan(api, p.word(api), &s.history, p.equal, time.Now()); next.action != nothing {
		p.waiting[uid] = next
	}
}

// objectOf is the UID of the object that is told the status of this pod: a static pod's mirror pod, or the pod's own.
func (p *Publisher) objectOf(uid types.UID) types.UID {
	if e := p.conf.Statuses.Get(uid); e != nil && e.Report.Desired.Source.Local() {
		return p.conf.Cache.mirrorOf(e.Pod)
	}
	return uid
}

// word is what is to be told of a pod.
func (p *Publisher) word(api *v1.Pod) word {
	uid := api.UID
	if Mirror(api) {
		for _, e := range p.conf.Statuses.Named(api.Namespace, api.Name) {
			if e.Report.Desired.Source.Local() && mirrors(api, e.Pod) {
				return word{status: ofMirror(&e.Pod.Status), mirror: true}
			}
		}
		return word{}
	}
	if entry := p.conf.Statuses.Get(uid); entry != nil && entry.Report.Desired.Source == pod.SourceAPI {
		if !entry.Report.Desired.RequiresTerminalPhase {
			return word{} // it is taken down here, and has not ended: exit code 0 would make a job complete
		}
		return word{status: &entry.Pod.Status, gone: entry.Report.Gone}
	}
	if r, refused := p.refused[uid]; refused {
		return word{status: &v1.PodStatus{Phase: v1.PodFailed, Reason: string(r.Reason), Message: r.Message},
			gone: true}
	}
	return word{}
}

// begin begins the calls that are due, the most urgent first, as far as they may be under way at once. It returns when
// the next one is due; zero if none is, or the end of a call is waited for.
func (p *Publisher) begin(ctx context.Context, calls *sync.WaitGroup) (next time.Time) {
	now := time.Now()
	var due []types.UID
	for uid, s := range p.waiting {
		switch {
		case !s.due.After(now):
			due = append(due, uid)
		case next.IsZero() || s.due.Before(next):
			next = s.due
		}
	}
	slices.SortFunc(due, func(a, b types.UID) int {
		x, y := p.waiting[a], p.waiting[b]
		return cmp.Or(-cmp.Compare(x.urgency, y.urgency), x.due.Compare(y.due))
	})
	for _, uid := range due {
		if p.inFlight == callsAtOnce {
			return time.Time{}
		}
		s, api := p.waiting[uid], p.conf.Cache.Get(uid)
		delete(p.waiting, uid)
		if api == nil {
			continue
		}
		p.inFlight++
		p.pods[uid].busy = true
		calls.Go(func() {
			r := result{uid: uid, step: s, api: api}
			r.answer, r.err = p.call(ctx, s, api)
			select {
			case p.results <- r:
			case <-ctx.Done():
			}
		})
	}
	return next
}

// call makes one call, and returns the object as it is then; nil if there is none.
func (p *Publisher) call(ctx context.Context, s step, api *v1.Pod) (*v1.Pod, error) {
	if s.action == deleteObject {
		return nil, p.conf.Cache.pods.Delete(ctx, api.Namespace, api.Name, api.UID)
	}
	body, err := patch(api, s.was, s.is)
	if err != nil {
		return nil, err
	}
	return p.conf.Cache.pods.PatchStatus(ctx, api.Namespace, api.Name, body)
}

// take takes in how a call ended.
func (p *Publisher) take(r result) {
	s := p.pods[r.uid]
	s.busy = false
	switch {
	case r.err == nil:
		s.backoff.Succeeded()
		s.said = ""
		if r.step.action == deleteObject {
			s.deleted = true
			return
		}
		s.sent, s.kept = r.step.is, told(&r.answer.Status, r.step.is)
		s.differs = time.Time{}
		p.conf.Cache.Answered(r.answer)
	case Replaced(r.err): // the watch is about to tell
		s.backoff.Wait(awaitWatch)
	default:
		if !s.backoff.Failed(r.err) {
			s.backoff.Wait(refusedPause)
		}
		if text := r.err.Error(); text != s.said && !apiclient.Unusable(r.err) {
			s.said = text
			p.conf.Log.Error(r.err, "The API server doesn't know how a pod is", "pod", klog.KObj(r.api),
				"podUID", r.uid, "failures", s.backoff.Failures())
		}
	}
}

const (
	// awaitWatch is how long the watch has to tell that an object has gone.
	awaitWatch = 10 * time.Second
	// refusedPause is how long is waited at least to ask again for what was refused for good.
	refusedPause = 30 * time.Second
)
