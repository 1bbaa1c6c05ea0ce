// Package execplugin runs one credential provider plugin: a program that reads a request on its standard input and
// writes a response to its standard output. See
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

// Timeout is how long a plugin may run.
const Timeout = time.Minute

// Plugin is a credential provider program. Its methods are safe for concurrent use; each call starts a process.
type Plugin struct {
	// Program is the path of the program, Args are its arguments. No shell is involved.
	Program string
	Args    []string
	// Env are variables, "NAME=value", that are added to the agent's environment or replace variables in it.
	Env []string
	// APIVersion is the protocol's version, such as credentialprovider.kubelet.k8s.io/v1.
	APIVersion string
}

// Request is a request to a plugin.
type Request struct {
	Image credentials.Image
	// Token and Annotations are of the pod's service account; empty for a plugin without tokenAttributes.
	Token       string
	Annotations map[string]string
}

// Response is a plugin's response.
type Response struct {
	// Entries are the credentials. The caller sets their origin.
	Entries []credentials.Entry
	// Key is the type of key under which the response may be cached.
	Key pluginv1.PluginCacheKeyType
	// Duration is how long the response may be cached, 0 for not at all. If it is nil, the configuration decides.
	Duration *time.Duration
	// Problems describe the entries that can't be used, without secrets.
	Problems []string
}

// Ask runs the plugin once, for at most Timeout. When it returns, no process of the plugin's process group is left.
// Errors contain the end of the plugin's standard error without the token, and nothing of its standard output.
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

// decode decodes a response. Its errors don't quote it. Unknown fields are ignored: they may be those of a later
// version.
func (p *Plugin) decode(answer []byte) (Response, error) {
	var in pluginv1.CredentialProviderResponse
	if err := json.Unmarshal(answer, &in); err != nil {
		if len(answer) == 0 {
			return Response{}, errors.New("it wrote nothing to its standard output")
		}
		return Response{}, errors.New("its standard output isn't a CredentialProviderResponse in JSON")
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
