package podobject

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// Statuses are the pods' statuses on this node, which the agent's workers determine.
type Statuses interface {
	Get(types.UID) *podstatus.Entry
	Named(namespace, name string) []*podstatus.Entry
	// Follow returns a slot that is woken for the UIDs of pods whose entry was changed or removed.
	Follow() (changed *wake.Keyed[types.UID], stop func())
}

// Refusals are the API server's pods that this node refuses to run.
type Refusals interface {
	Refused() []pod.Refusal
	Subscribe() (changed <-chan struct{}, stop func())
}

// PublisherConfig configures a Publisher.
type PublisherConfig struct {
	Cache    *Cache
	Statuses Statuses
	Refusals Refusals
	// Reached receives when the API server has recovered: calls that failed because of it are retried soon
	// (apiclient.Client.Recovered).
	Reached <-chan struct{}
	Log     logr.Logger
}

// Publisher writes the statuses of this node's pods to the API server, and deletes the objects of pods that have
// ended.
type Publisher struct {
	conf  PublisherConfig
	equal conversion.Equalities

	// The rest belongs to Run.
	pods map[types.UID]*published
	// waiting are the next steps, which are due later or as soon as a call can be made.
	waiting map[types.UID]step
	refused map[types.UID]pod.Refusal
	calls   *apiclient.Pool[result]
}

// published is the state of one pod's object.
type published struct {
	history
	// busy says that a call is in progress: the next one depends on its result.
	busy bool
	last logging.LastError
}

// result is the result of a call.
type result struct {
	uid  types.UID
	step step
	api  *v1.Pod
	// answer is the object after the call; nil if none was returned.
	answer *v1.Pod
	err    error
}

// NewPublisher returns a publisher. It does nothing before Run.
func NewPublisher(c PublisherConfig) *Publisher {
	return &Publisher{conf: c, equal: statusEquality(), pods: map[types.UID]*published{}, waiting: map[types.UID]step{},
		refused: map[types.UID]pod.Refusal{}, calls: apiclient.NewPool[result]()}
}

// Run writes statuses and deletes objects until ctx ends. Failed calls are repeated. The error is nil.
func (p *Publisher) Run(ctx context.Context) error {
	statuses, stopStatuses := p.conf.Statuses.Follow()
	defer stopStatuses()
	objects, stopObjects := p.conf.Cache.Subscribe()
	defer stopObjects()
	refusals, stopRefusals := p.conf.Refusals.Subscribe()
	defer stopRefusals()
	calling, cancel := context.WithCancel(ctx)
	defer p.calls.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	p.takeRefusals()
	pods, _ := p.conf.Cache.Pods()
	mirrors, _ := p.conf.Cache.Mirrors()
	for _, o := range slices.Concat(pods, mirrors) {
		p.schedule(o.UID)
	}
	for {
		next := p.startCalls(calling)
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
				p.schedule(uid)
			}
		case <-statuses.Woken():
			for _, uid := range statuses.Drain() {
				p.schedule(p.objectOf(uid))
			}
		case <-objects.Woken():
			for _, uid := range objects.Drain() {
				p.schedule(uid)
			}
		case <-refusals:
			p.takeRefusals()
		case <-p.conf.Reached:
			for uid := range p.waiting {
				if s := p.pods[uid]; s != nil {
					s.backoff.Recovered()
				}
				p.schedule(uid)
			}
		case r := <-p.calls.Results():
			p.calls.Ended()
			p.handleResult(r)
			p.schedule(r.uid)
		}
	}
}

// takeRefusals updates the pods that this node refuses.
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
				p.schedule(uid)
			}
		}
	}
}

// schedule determines the next step for a pod.
func (p *Publisher) schedule(uid types.UID) {
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

// objectOf is the UID of the object that has this pod's status: a static pod's mirror pod, or the pod's own.
func (p *Publisher) objectOf(uid types.UID) types.UID {
	if e := p.conf.Statuses.Get(uid); e != nil && e.Report.Desired.Source.Local() {
		return p.conf.Cache.mirrorOf(e.Pod)
	}
	return uid
}

// word returns this node's report of a pod.
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
			return word{} // the source dropped the pod, which isn't its end: exit code 0 would make a Job complete
		}
		return word{status: &entry.Pod.Status, gone: entry.Report.Gone}
	}
	if r, refused := p.refused[uid]; refused {
		return word{status: &v1.PodStatus{Phase: v1.PodFailed, Reason: string(r.Reason), Message: r.Message},
			gone: true}
	}
	return word{}
}

// startCalls starts the calls that are due, the most urgent first, as far as the pool has room. It returns when the
// next one is due; zero if there is none, or if another call has to end first.
func (p *Publisher) startCalls(ctx context.Context) (next time.Time) {
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
		if p.calls.Full() {
			return time.Time{}
		}
		s, api := p.waiting[uid], p.conf.Cache.Get(uid)
		delete(p.waiting, uid)
		if api == nil {
			continue
		}
		p.pods[uid].busy = true
		p.calls.Go(ctx, func() result {
			r := result{uid: uid, step: s, api: api}
			r.answer, r.err = p.call(ctx, s, api)
			return r
		})
	}
	return next
}

// call makes one call, and returns the object after it; nil if it was deleted.
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

// handleResult processes the result of a call.
func (p *Publisher) handleResult(r result) {
	s := p.pods[r.uid]
	s.busy = false
	switch {
	case r.err == nil:
		s.backoff.Succeeded()
		s.last.Clear()
		if r.step.action == deleteObject {
			s.deleted = true
			return
		}
		s.sent, s.acknowledged = r.step.is, owned(&r.answer.Status, &r.answer.Status, r.step.is)
		s.differs = time.Time{}
		p.conf.Cache.Answered(r.answer)
	case Replaced(r.err): // the watch is about to report that the object is gone
		s.backoff.Wait(awaitWatch)
	default:
		if !s.backoff.Failed(r.err) {
			s.backoff.Wait(refusedPause)
		}
		if !apiclient.Unusable(r.err) {
			s.last.Log(p.conf.Log, r.err, "The API server doesn't know how a pod is", "pod", klog.KObj(r.api),
				"podUID", r.uid, "failures", s.backoff.Failures())
		}
	}
}

const (
	// awaitWatch is how long the watch has to report that an object is gone.
	awaitWatch = 10 * time.Second
	// refusedPause is the shortest delay after a call that will fail again unless the request changes.
	refusedPause = 30 * time.Second
)
