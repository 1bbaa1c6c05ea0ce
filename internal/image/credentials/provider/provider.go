// Package provider gets credentials from credential provider plugins: programs that know
// passwords for the images they are configured for. It reads their configuration
// (CredentialProviderConfig of kubelet.config.k8s.io v1, v1beta1 and v1alpha1), asks each
// plugin only for its images, keeps answers for as long as they say, and asks once for those
// who want the same at the same time. Package execplugin runs the programs.
//
// See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ and, for
// service accounts, KEP-4412.
package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/credentials/provider/execplugin"
)

// maxAtOnce is how many plugins run at the same time. Each may take a minute if its
// cloud doesn't answer, and shouldn't keep all others waiting; but a node that
// starts shouldn't begin with a hundred processes either.
const maxAtOnce = 8

// Metrics counts calls of plugins (kubelet_credential_provider_plugin_duration and
// kubelet_credential_provider_plugin_errors, both by plugin_name).
type Metrics interface {
	PluginCalled(plugin string, took time.Duration, failed bool)
}

// Options are what Plugins are made from.
type Options struct {
	// Providers come from Load.
	Providers []Provider
	Metrics   Metrics
	Log       logr.Logger
}

// Plugins are the plugins of this node. They may be used by many goroutines, and
// hold none while nobody waits for an answer.
type Plugins struct {
	list []*plugin
	log  logr.Logger
}

// New makes Plugins. No plugin is called before an image is asked for.
func New(o Options) *Plugins {
	s := &Plugins{log: o.Log}
	atOnce := semaphore.NewWeighted(maxAtOnce)
	for _, config := range o.Providers {
		program := &execplugin.Plugin{Program: config.Program, Args: config.Args, APIVersion: config.APIVersion}
		for _, env := range config.Env {
			program.Env = append(program.Env, env.Name+"="+env.Value)
		}
		s.list = append(s.list, newPlugin(config, program, atOnce, o.Metrics, o.Log.WithValues("plugin", config.Name)))
	}
	return s
}

// Credentials returns what the plugins have for an image, in the order of
// credentials.Match; of equal keys, that of the provider configured earlier is first.
// p is nil for a pull that no pod needs. The error reports plugins that failed,
// beside what the others said; it is in one line and has nothing secret.
func (s *Plugins) Credentials(ctx context.Context, p *v1.Pod, objects credentials.Objects,
	image credentials.Image) ([]credentials.Credential, error) {
	var asked []*plugin
	for _, one := range s.list {
		if one.isFor(image) {
			asked = append(asked, one)
		}
	}
	answers := make([][]credentials.Entry, len(asked))
	failures := make([]error, len(asked))
	var wait sync.WaitGroup
	for i, one := range asked {
		wait.Go(func() {
			answers[i], failures[i] = s.ask(ctx, one, p, objects, image)
		})
	}
	wait.Wait()
	return credentials.Match(slices.Concat(answers...), image), inOneLine(failures)
}

// ask asks one plugin on behalf of a pod.
func (s *Plugins) ask(ctx context.Context, one *plugin, p *v1.Pod, objects credentials.Objects,
	image credentials.Image) ([]credentials.Entry, error) {
	a, isAsked, err := newAsker(ctx, one.config.TokenAttributes, p, objects, image)
	var entries []credentials.Entry
	if err == nil && isAsked {
		entries, err = one.ask(ctx, a)
	}
	if err != nil {
		return nil, fmt.Errorf("credential provider %q: %w", one.config.Name, err)
	}
	return entries, nil
}

// inOneLine is what errors.Join does, for an event.
func inOneLine(list []error) error {
	var all error
	for _, err := range list {
		switch {
		case err == nil:
		case all == nil:
			all = err
		default:
			all = fmt.Errorf("%w; %w", all, err)
		}
	}
	return all
}

// errGone is the cause of a call that nobody waits for any more.
var errGone = errors.New("nobody waits for it any more")
