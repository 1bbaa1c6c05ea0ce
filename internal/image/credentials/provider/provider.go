// Package provider gets credentials from credential provider plugins: programs that return credentials for the images
// that they are configured for. It reads their configuration (CredentialProviderConfig of kubelet.config.k8s.io v1,
// v1beta1 and v1alpha1), calls each plugin only for its images, caches responses for as long as they specify, and
// shares calls between concurrent requests. Package execplugin runs the programs.
//
// See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-credential-provider/ and, for service accounts,
// KEP-4412.
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

// maxAtOnce limits the number of plugin processes at one time. A single plugin may take a minute if its cloud doesn't
// respond, and mustn't block all other plugins; but a starting node mustn't start a hundred processes.
const maxAtOnce = 8

// Metrics counts calls of plugins (kubelet_credential_provider_plugin_duration and
// kubelet_credential_provider_plugin_errors, both by plugin_name).
type Metrics interface {
	PluginCalled(plugin string, took time.Duration, failed bool)
}

// Options configures Plugins.
type Options struct {
	// Providers come from Load.
	Providers []Provider
	Metrics   Metrics
	Log       logr.Logger
}

// Plugins are the plugins of this node. They are safe for concurrent use, and run goroutines only while a caller
// waits.
type Plugins struct {
	list []*plugin
	log  logr.Logger
}

// New returns Plugins. No plugin is called before the first request.
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

// Credentials returns the plugins' credentials for an image, in the order of credentials.Match; of credentials with
// equal patterns, those of the provider that is configured earlier come first. p is nil for a pull without a pod. The
// error reports the plugins that failed, in one line without secrets; the result has the credentials of the others.
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

// ask calls one plugin on behalf of a pod.
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

// inOneLine joins errors like errors.Join, but in one line, for an event.
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

// errGone is the cancellation cause of a call without waiters.
var errGone = errors.New("nobody waits for it any more")
