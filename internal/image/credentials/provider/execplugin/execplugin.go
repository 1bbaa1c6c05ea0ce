// Package execplugin asks one credential provider plugin: a program that is told
// of an image on its standard input and answers on its standard output. See
// https://kubernetes.io/docs/reference/config-api/kubelet-credentialprovider.v1/.
package execplugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/kit/subprocess"
)

// Timeout is how long a plugin may take.
const Timeout = time.Minute

// Plugin is a program that knows credentials. Its methods may be called by many
// goroutines; each call is a process of its own.
type Plugin struct {
	// Program is the path of the program, Args what follows it. No shell is involved.
	Program string
	Args    []string
	// Env are variables beside the agent's own, "NAME=value", which they replace.
	Env []string
	// APIVersion is the protocol's, such as credentialprovider.kubelet.k8s.io/v1.
	APIVersion string
}

// Request is what a plugin is asked.
type Request struct {
	Image credentials.Image
	// Token and Annotations are of the pod's service account; empty for a plugin that
	// doesn't ask for them.
	Token       string
	Annotations map[string]string
}

// Response is what it answers.
type Response struct {
	// Entries are the credentials; their origin is left to the caller.
	Entries []credentials.Entry
	// Key says what the answer is good for, and so under which key it may be kept.
	Key pluginv1.PluginCacheKeyType
	// Duration says for how long; 0 for this one time. Nil leaves it to the configuration.
	Duration *time.Duration
	// Problems report entries that can't be used, and nothing secret.
	Problems []string
}

// Ask runs the plugin once, for at most Timeout. When it returns, no process of the
// plugin's process group is left. Errors have the end of what the plugin wrote to its
// standard error, without the token, and never what it wrote to its standard output.
func (p *Plugin) Ask(ctx context.Context, r Request) (Response, error) {
	question, err := json.Marshal(pluginv1.CredentialProviderRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: p.APIVersion, Kind: "CredentialProviderRequest"},
		Image:    r.Image.Name(), ServiceAccountToken: r.Token, ServiceAccountAnnotations: r.Annotations,
	})
	if err != nil {
		return Response{}, fmt.Errorf("encode the request: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, fmt.Errorf("it took longer than %v and was ended", Timeout))
	defer cancel()
	answer, err := subprocess.Program{Path: p.Program, Args: p.Args, Env: p.Env}.Run(ctx, question, r.Token)
	if err != nil {
		return Response{}, err
	}
	return p.decode(answer)
}

// decode reads an answer. Its errors don't repeat anything of it. Unknown fields
// are passed over, as they may be those of a later version.
func (p *Plugin) decode(answer []byte) (Response, error) {
	var in pluginv1.CredentialProviderResponse
	if err := json.Unmarshal(answer, &in); err != nil {
		if len(answer) == 0 {
			return Response{}, errors.New("it wrote nothing to its standard output")
		}
		return Response{}, errors.New("what it wrote to its standard output isn't a CredentialProviderResponse in JSON")
	}
	if in.APIVersion != p.APIVersion || in.Kind != "CredentialProviderResponse" {
		return Response{}, fmt.Errorf(
			"it has to answer with apiVersion %s, as it was asked, and kind CredentialProviderResponse, but does "+
				"with others", p.APIVersion)
	}
	switch in.CacheKeyType {
	case pluginv1.ImagePluginCacheKeyType, pluginv1.RegistryPluginCacheKeyType, pluginv1.GlobalPluginCacheKeyType:
	default:
		return Response{}, errors.New("its cacheKeyType is none of Image, Registry and Global")
	}
	out := Response{Key: in.CacheKeyType}
	if in.CacheDuration != nil {
		if in.CacheDuration.Duration < 0 {
			return Response{}, errors.New("its cacheDuration is negative")
		}
		out.Duration = &in.CacheDuration.Duration
	}
	for _, key := range slices.Sorted(maps.Keys(in.Auth)) {
		auth := in.Auth[key]
		pattern, err := credentials.ParsePattern(key)
		if err != nil {
			out.Problems = append(out.Problems,
				fmt.Sprintf("one of its %d keys of auth can't be used: %v", len(in.Auth), err))
			continue
		}
		out.Entries = append(out.Entries, credentials.Entry{Pattern: pattern,
			Credential: credentials.Credential{Username: auth.Username, Password: auth.Password, ServerAddress: key}})
	}
	return out, nil
}
