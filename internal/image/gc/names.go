package gc

import (
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// key normalizes references to an image: an ID to its digest, with or without "sha256:"; a name with a digest to the
// digest; another name to its full form with a tag, latest by default.
func key(ref string) string {
	parsed, err := reference.ParseAnyReference(ref)
	if err != nil {
		return ref
	}
	if digested, ok := parsed.(reference.Digested); ok {
		return digested.Digest().String()
	}
	if named, ok := parsed.(reference.Named); ok {
		return reference.TagNameOnly(named).String()
	}
	return parsed.String()
}

// reading caches the key of each reference: parsing a name is slow, and thousands of pods use few images.
type reading map[string]string

func (r reading) key(ref string) string {
	k, known := r[ref]
	if !known {
		k = key(ref)
		r[ref] = k
	}
	return k
}

// keys returns all keys of an image, that of the ID first.
func keys(id string, tags, digests []string) []string {
	out := make([]string, 0, 1+len(tags)+len(digests))
	out = append(out, key(id))
	for _, tag := range tags {
		out = append(out, key(tag))
	}
	for _, digest := range digests {
		out = append(out, key(digest))
	}
	return out
}

// meant returns the names to remove if a user removes name: a tag, with the repository's digests if it has no other
// tag; or a digest with its repository's tags. It is nil if the whole image is to be removed: if it has no other
// names, or name is an ID.
func (i *Image) meant(name string) []string {
	k, repository := key(name), repositoryOf(name)
	same := func(n string) bool { return repositoryOf(n) == repository }
	asTag := func(n string) bool { return key(n) == k }
	asDigest := func(n string) bool { return same(n) && key(n) == k }
	var names []string
	switch {
	case slices.ContainsFunc(i.Tags, asTag):
		names = append(names, k)
		if !slices.ContainsFunc(i.Tags, func(n string) bool { return same(n) && key(n) != k }) {
			names = append(names, filter(i.Digests, same)...)
		}
	case slices.ContainsFunc(i.Digests, asDigest):
		names = append(filter(i.Tags, same), filter(i.Digests, same)...)
	}
	if len(names) == len(i.Tags)+len(i.Digests) {
		return nil
	}
	return names
}

// Named returns the tags that name selects: that tag, or all tags if it is an ID or a digest.
func (i *Image) Named(name string) []string {
	k := key(name)
	if at := slices.IndexFunc(i.Tags, func(n string) bool { return key(n) == k }); at >= 0 {
		return i.Tags[at : at+1]
	}
	return i.Tags
}

func filter(names []string, by func(string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !by(n) })
}

// repositoryOf returns the repository of an image name, or "" for an ID.
func repositoryOf(ref string) string {
	parsed, err := reference.ParseAnyReference(ref)
	if err != nil {
		return ""
	}
	if named, ok := parsed.(reference.Named); ok {
		return named.Name()
	}
	return ""
}

// index maps a key to the indexes of the images that have it. Several images may have the same key, for example one
// digest.
type index map[string][]int

func newIndex(images []Image) index {
	x := make(index, 3*len(images))
	for n, image := range images {
		for _, k := range keys(image.ID, image.Tags, image.Digests) {
			if at := x[k]; len(at) == 0 || at[len(at)-1] != n {
				x[k] = append(at, n)
			}
		}
	}
	return x
}

// shortest is the minimum length, in hexadecimal digits, of an ID prefix that selects an image.
const shortest = 6

// idPrefix reports whether text is a prefix of the ID in hexadecimal, with or without "sha256:".
func idPrefix(id, text string) bool {
	text = strings.TrimPrefix(text, "sha256:")
	return len(text) >= shortest && strings.HasPrefix(strings.TrimPrefix(id, "sha256:"), text)
}
