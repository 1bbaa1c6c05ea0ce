package provider

import (
	"time"

	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// maxCached limits the cached responses of one plugin. Few nodes have more images and service accounts.
const maxCached = 512

// cacheKey identifies the requests that a response is valid for: those for an image, a registry or all of a plugin's
// images, in one scope.
type cacheKey struct {
	kind         pluginv1.PluginCacheKeyType
	place, scope string
}

// key returns the key of this kind under which a response for the asker is cached.
func (a asker) key(kind pluginv1.PluginCacheKeyType) cacheKey {
	key := cacheKey{kind: kind, scope: a.scope}
	switch kind {
	case pluginv1.ImagePluginCacheKeyType:
		key.place = a.image.Name()
	case pluginv1.RegistryPluginCacheKeyType:
		key.place = a.image.Registry()
	}
	return key
}

// cache caches responses until they expire. The plugin that owns it locks it.
type cache map[cacheKey]cached

type cached struct {
	entries []credentials.Entry
	expires time.Time
}

// get returns a cached response that is valid for the asker.
func (c cache) get(a asker) ([]credentials.Entry, bool) {
	now := time.Now()
	for _, kind := range []pluginv1.PluginCacheKeyType{pluginv1.ImagePluginCacheKeyType,
		pluginv1.RegistryPluginCacheKeyType, pluginv1.GlobalPluginCacheKeyType} {
		if found, ok := c[a.key(kind)]; ok && now.Before(found.expires) {
			return found.entries, true
		}
	}
	return nil, false
}

// put caches a response and drops the expired ones. If the cache is full, it drops the response that would expire
// first.
func (c cache) put(key cacheKey, entries []credentials.Entry, lasts time.Duration) {
	now := time.Now()
	var first cacheKey
	for k, v := range c {
		if !now.Before(v.expires) {
			delete(c, k)
		} else if earliest, ok := c[first]; !ok || v.expires.Before(earliest.expires) {
			first = k
		}
	}
	if _, isKnown := c[key]; !isKnown && len(c) >= maxCached {
		delete(c, first)
	}
	c[key] = cached{entries: entries, expires: now.Add(lasts)}
}
