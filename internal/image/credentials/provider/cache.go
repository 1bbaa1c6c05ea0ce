package provider

import (
	"time"

	pluginv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// maxCached is how many answers of one plugin are kept. A node has about as many
// images and service accounts at most.
const maxCached = 512

// cacheKey is what an answer is good for: an image, a registry or all of a
// plugin's images, for one scope.
type cacheKey struct {
	kind         pluginv1.PluginCacheKeyType
	place, scope string
}

// key is the asker's of this kind.
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

// cache keeps answers until they expire. It belongs to a plugin, whose lock it needs.
type cache map[cacheKey]cached

type cached struct {
	entries []credentials.Entry
	expires time.Time
}

// get returns an answer that is good for the asker.
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

// put keeps an answer, and drops those that have expired. If there are too many, the
// one goes that would expire first.
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
