// Package runsource is the source of pods that a connected user runs (`deckhand run FILE`), and of the other objects
// in the file. They live as long as the connection and aren't stored.
package runsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Source holds the pods that users run now. It is safe for concurrent use.
type Source struct {
	reader *reader.Reader
	sink   desired.Sink
	wanted func() *desired.Set
	log    logr.Logger

	running sync.Mutex

	// mu is held while reporting, so that reports arrive in order.
	mu    sync.Mutex
	added map[*Addition]struct{}
}

// New returns a source that reads with r and reports to sink. wanted returns the current set: the pods of other sources
// in this set keep their names. wanted is nil if there are no other sources.
func New(r *reader.Reader, sink desired.Sink, wanted func() *desired.Set, log logr.Logger) *Source {
	if wanted == nil {
		wanted = func() *desired.Set { return &desired.Set{} }
	}
	return &Source{
		reader: r,
		sink:   sink,
		wanted: wanted,
		log:    log.WithValues("source", pod.SourceRun),
		added:  map[*Addition]struct{}{},
	}
}

// Run reports the pods once, and returns nil when ctx is done. Add and Remove report each change themselves. It may
// be run again after it returned.
func (s *Source) Run(ctx context.Context) error {
	if !s.running.TryLock() {
		return errors.New("the run source is running already")
	}
	defer s.running.Unlock()
	s.mu.Lock()
	s.report()
	s.mu.Unlock()
	<-ctx.Done()
	return nil
}

// Addition holds the pods of one manifest, which were added together.
type Addition struct {
	// Pods are the pods, in the order of the manifest. A pod that isn't in the set lost its name to another source's
	// pod: see the set's problems.
	Pods []*pod.Desired
	// Objects are the other objects of the manifest. They, too, may have lost their names to another source.
	Objects []*object.Desired

	source *Source
	since  time.Time
}

// Add runs the pods of a manifest and defines its objects until Remove is called. origin is where the manifest is
// from. It adds nothing if any document has an error; the returned error has all of them, one line each.
func (s *Source) Add(origin string, data []byte) (*Addition, error) {
	a := &Addition{source: s, since: time.Now()}
	if err := a.read(origin, data); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.free(a); err != nil {
		return nil, fmt.Errorf("%s can't be run: %w", origin, err)
	}
	s.added[a] = struct{}{}
	s.log.V(2).Info("Pods added", "origin", origin, "pods", len(a.Pods), "objects", len(a.Objects))
	s.report()
	return a, nil
}

// Remove ends the pods of the addition. It may be called repeatedly.
func (a *Addition) Remove() {
	s := a.source
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.added[a]; !there {
		return
	}
	delete(s.added, a)
	s.log.V(2).Info("Pods removed", "pods", len(a.Pods))
	s.report()
}

// read reads the pods and objects of a manifest, or returns all its errors.
func (a *Addition) read(origin string, data []byte) error {
	docs, err := a.source.reader.Read(data)
	if err != nil {
		return fmt.Errorf("%s can't be run: %w", origin, err)
	}
	var wrong []string
	numbers := map[reader.ID]int{}
	for _, d := range docs {
		if first, taken := numbers[d.ID]; taken && d.Name != "" {
			wrong = append(wrong, fmt.Sprintf("document %d: %s has the same name as document %d", d.Number, d.ID,
				first))
			continue
		}
		numbers[d.ID] = d.Number
		for _, problem := range a.addDoc(origin, d) {
			if len(docs) > 1 {
				problem = fmt.Sprintf("document %d: %s", d.Number, problem)
			}
			wrong = append(wrong, problem)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%s can't be run:\n%s", origin, strings.Join(wrong, "\n"))
	}
	if len(a.Pods) == 0 {
		return fmt.Errorf("%s can't be run: it holds no pod", origin)
	}
	return nil
}

// addDoc adds the pod or object of one document, or returns its errors.
func (a *Addition) addDoc(origin string, d reader.Doc) (wrong []string) {
	if len(d.Errors) > 0 {
		return d.Errors
	}
	v := reader.First(a.source.reader.UID(d, origin), a.since) // always First: a pod ends before its next version
	p, o, wrong := a.source.reader.Desire(d, v, origin)
	switch {
	case p != nil:
		a.Pods = append(a.Pods, p)
	case o != nil:
		a.Objects = append(a.Objects, o)
	}
	return wrong
}

// Lost returns an error if another source that reported after Add has the name or the UID of one of the addition's
// pods.
func (a *Addition) Lost() error {
	for _, p := range a.Pods {
		if d := a.source.other(p); d != nil {
			return fmt.Errorf("%s can't be run: %w", p.Origin, taken(p, d))
		}
	}
	return nil
}

// other returns the pod of another source that has the name or the UID of p; nil if there is none.
func (s *Source) other(p *pod.Desired) *pod.Desired {
	set := s.wanted()
	for _, list := range [][]*pod.Desired{set.Pods, set.Stopped} {
		for _, d := range list {
			if d.Source != s.reader.Source() && (pod.FullName(d.Pod) == pod.FullName(p.Pod) || d.Pod.UID == p.Pod.UID) {
				return d
			}
		}
	}
	return nil
}

// taken is the error that d has the name or the UID of p.
func taken(p, d *pod.Desired) error {
	if pod.FullName(d.Pod) != pod.FullName(p.Pod) {
		return fmt.Errorf("pod %s/%s has the UID of pod %s/%s, which is already run from %s; give it another",
			p.Pod.Namespace, p.Pod.Name, d.Pod.Namespace, d.Pod.Name, d.Origin)
	}
	return fmt.Errorf("pod %s/%s is already run from %s; rename one of them, or remove the other", p.Pod.Namespace,
		p.Pod.Name, d.Origin)
}

// free returns an error if one of the addition's pods is being run already, or one of its objects is defined already.
func (s *Source) free(a *Addition) error {
	for _, p := range a.Pods {
		if d := s.other(p); d != nil {
			return taken(p, d)
		}
	}
	for other := range s.added {
		for _, running := range other.Pods {
			if slices.ContainsFunc(a.Pods, func(p *pod.Desired) bool {
				return pod.FullName(p.Pod) == pod.FullName(running.Pod)
			}) {
				return fmt.Errorf("pod %s/%s is already run from %s; end that first", running.Pod.Namespace,
					running.Pod.Name, running.Origin)
			}
		}
		for _, defined := range other.Objects {
			if slices.ContainsFunc(a.Objects, func(o *object.Desired) bool { return o.Key() == defined.Key() }) {
				return fmt.Errorf("%s is already defined by %s; end that first", defined, defined.Origin)
			}
		}
	}
	return nil
}

// report sends all pods to the sink. mu is held.
func (s *Source) report() {
	r := desired.Report{Source: s.reader.Source()}
	for a := range s.added {
		for i, p := range a.Pods {
			r.Claims = append(r.Claims, desired.Claim{Desired: p, Document: i + 1, Since: a.since})
		}
		for i, o := range a.Objects {
			r.Objects = append(r.Objects, desired.ObjectClaim{Object: o, Document: i + 1, Since: a.since})
		}
	}
	slices.SortFunc(r.Claims, func(a, b desired.Claim) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Desired.Origin, b.Desired.Origin),
			cmp.Compare(a.Document, b.Document))
	})
	s.sink.Report(r)
}
