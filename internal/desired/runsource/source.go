// Package runsource is the source of pods that a connected person asks for
// (`deckhand run FILE`). They live as long as the connection does and are kept nowhere.
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
	"github.com/deckhand-node/deckhand/internal/desired/static"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Source holds the pods asked for at present. Safe for concurrent use.
type Source struct {
	reader *reader.Reader
	sink   desired.Sink
	log    logr.Logger

	running sync.Mutex

	// mu is held while reporting, so that reports arrive in order.
	mu    sync.Mutex
	added map[*Addition]struct{}
}

// New returns a source that reports to sink what r reads.
func New(r *reader.Reader, sink desired.Sink, log logr.Logger) *Source {
	return &Source{
		reader: r,
		sink:   sink,
		log:    log.WithValues("source", pod.SourceRun),
		added:  map[*Addition]struct{}{},
	}
}

// Run reports, and returns nil when the context ends. Between, Add and Remove
// report by themselves. It may be run again after it returned.
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

// Addition is the pods of one manifest that were added together.
type Addition struct {
	// Pods are the pods, in the order of the manifest. One that isn't in the set
	// with this very pointer lost its name to another source's pod: see the set's problems.
	Pods []*pod.Desired

	source *Source
	since  time.Time
}

// Add has the pods of a manifest run until Remove is called. origin says where the
// manifest is from. It adds nothing if anything is wrong with any document; the error
// then tells everything, one line each.
func (s *Source) Add(origin string, data []byte) (*Addition, error) {
	now := time.Now()
	pods, err := s.read(origin, data, now)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.free(pods); err != nil {
		return nil, err
	}
	a := &Addition{Pods: pods, source: s, since: now}
	s.added[a] = struct{}{}
	s.log.V(2).Info("Pods added", "origin", origin, "pods", len(pods))
	s.report()
	return a, nil
}

// Remove has the pods of the addition end. It may be called repeatedly.
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

// read returns the pods of a manifest, or everything that is wrong with it.
func (s *Source) read(origin string, data []byte, now time.Time) ([]*pod.Desired, error) {
	docs, err := s.reader.Read(data)
	if err != nil {
		return nil, fmt.Errorf("%s can't be run: %w", origin, err)
	}
	if len(docs) == 0 {
		return nil, fmt.Errorf("%s can't be run: it holds no pod", origin)
	}
	var pods []*pod.Desired
	var wrong []string
	names := map[string]int{}
	for _, d := range docs {
		if first, taken := names[d.Name]; taken && d.Name != "" {
			wrong = append(wrong, fmt.Sprintf("document %d: pod %s has the same name as document %d", d.Number, d.Name, first))
			continue
		}
		names[d.Name] = d.Number
		p, problems := s.pod(d, now)
		for _, problem := range problems {
			if len(docs) > 1 {
				problem = fmt.Sprintf("document %d: %s", d.Number, problem)
			}
			wrong = append(wrong, problem)
		}
		if p != nil {
			p.Origin = origin
			pods = append(pods, p)
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%s can't be run:\n%s", origin, strings.Join(wrong, "\n"))
	}
	return pods, nil
}

func (s *Source) pod(d reader.Doc, now time.Time) (*pod.Desired, []string) {
	if len(d.Errors) > 0 {
		return nil, d.Errors
	}
	v := static.First(d.Hash, now) // whoever wants another version ends this one first
	p, wrong := s.reader.Complete(d, v)
	if len(wrong) > 0 {
		return nil, wrong
	}
	return &pod.Desired{Pod: p, Source: s.reader.Source(), Base: v.Base}, nil
}

// free reports, as an error, that one of the pods is being run already.
func (s *Source) free(pods []*pod.Desired) error {
	for a := range s.added {
		for _, running := range a.Pods {
			for _, p := range pods {
				if pod.FullName(p.Pod) == pod.FullName(running.Pod) {
					return fmt.Errorf("%s can't be run: pod %s/%s is already run from %s; end that first",
						p.Origin, p.Pod.Namespace, p.Pod.Name, running.Origin)
				}
			}
		}
	}
	return nil
}

// report tells the sink all pods. mu is held.
func (s *Source) report() {
	r := desired.Report{Source: s.reader.Source()}
	for a := range s.added {
		for i, p := range a.Pods {
			r.Claims = append(r.Claims, desired.Claim{Desired: p, Document: i + 1, Since: a.since})
		}
	}
	slices.SortFunc(r.Claims, func(a, b desired.Claim) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Desired.Origin, b.Desired.Origin), cmp.Compare(a.Document, b.Document))
	})
	s.sink.Report(r)
}
