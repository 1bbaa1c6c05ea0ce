package agent

import (
	"context"
	"os"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/httpsource"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/reader"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

// desiredParts are the sources of pods, and the set of pods that should run.
type desiredParts struct {
	*desired.Sources
	runs *runsource.Source
	// objects has the ConfigMaps, Secrets and other objects that manifests define.
	objects interface {
		object.Finder
		object.View
	}
	pods nodePods
}

func newDesired(b *foundation, r *runtimeParts) (*desiredParts, error) {
	d := &desiredParts{}
	sources, err := desired.NewSources(b.by.sources(sourceKinds(b, &d.runs)), b.statuses, b.log.WithName("desired"))
	if err != nil {
		return nil, err
	}
	d.Sources = sources
	d.objects = object.NewLocal(func() *object.Set { return d.Merger.Current().Objects })
	d.pods = nodePods{wanted: d.Merger, observed: r.seen, statuses: b.statuses, dir: b.dirs.Pods()}
	return d, nil
}

// sourceKinds lists the sources of pods that the configuration names. When it builds the source of `deckhand run`,
// it sets runs to it. The file and HTTP sources store the manifests that they read last; with StopAll only these
// stored manifests are used.
func sourceKinds(b *foundation, runs **runsource.Source) []desired.SourceKind {
	k, rules := b.kubelet(), reader.RulesOf(b.cfg)
	read := func(s pod.Source) *reader.Reader { return reader.New(b.cfg.NodeName, s, rules) }
	store := func(s pod.Source) *manifeststore.Store {
		store := manifeststore.NewStore(b.checkpoint("desired"), b.dirs.Pods(), s)
		store.DiskFreed = &b.wakes.writers
		return store
	}
	module := func(name string, run func(context.Context) error) desired.Source {
		return desired.Source{Module: modules.Module{Name: name, Run: run}}
	}
	kinds := []desired.SourceKind{
		{Name: pod.SourceRun, New: func(m *desired.Merger, _ *podstatus.Store) (desired.Source, error) {
			*runs = runsource.New(read(pod.SourceRun), m, m.Current, b.log.WithName("run"))
			return module("pods of deckhand run", (*runs).Run), nil
		}}}
	if b.o.StopAll {
		for _, s := range []pod.Source{pod.SourceFile, pod.SourceHTTP} {
			kinds = append(kinds, desired.SourceKind{Name: s,
				New: func(m *desired.Merger, _ *podstatus.Store) (desired.Source, error) {
					return desired.Source{Module: modules.Module{Name: "last pods of source " + string(s),
						Start: func(context.Context) error {
							m.Report(manifeststore.Recall(read(s), store(s)))
							return nil
						}}}, nil
				}})
		}
		return kinds
	}
	if k.StaticPodPath != "" {
		kinds = append(kinds, desired.SourceKind{Name: pod.SourceFile,
			New: func(m *desired.Merger, _ *podstatus.Store) (desired.Source, error) {
				f := file.New(file.Config{Path: k.StaticPodPath, Every: k.FileCheckFrequency.Duration,
					DeletedAtOnce: !b.cfg.Standalone, Files: b.files, Invoker: rootdir.InvokerOf(os.Getenv)},
					read(pod.SourceFile), store(pod.SourceFile), m, b.log.WithName("file"))
				s := module("manifest directory", f.Run)
				s.Exposures = f.Exposures
				return s, nil
			}})
	}
	if k.StaticPodURL != "" {
		kinds = append(kinds, desired.SourceKind{Name: pod.SourceHTTP,
			New: func(m *desired.Merger, _ *podstatus.Store) (desired.Source, error) {
				h, err := httpsource.New(httpsource.Config{URL: k.StaticPodURL, Header: k.StaticPodURLHeader,
					Every: k.HTTPCheckFrequency.Duration}, read(pod.SourceHTTP), store(pod.SourceHTTP), m,
					b.log.WithName("http"))
				if err != nil {
					return desired.Source{}, err
				}
				return module("manifest URL", h.Run), nil
			}})
	}
	if b.joins() { // package agent/cluster builds the source of the API server's pods
		kinds = append(kinds, desired.SourceKind{Name: pod.SourceAPI,
			New: func(*desired.Merger, *podstatus.Store) (desired.Source, error) {
				return desired.Source{}, nil
			}})
	}
	return kinds
}
