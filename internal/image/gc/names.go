package gc

import (
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// key is the same for all ways to write what an image can be known by: an ID, with or
// without "sha256:"; a name with a digest, whatever else it has; a name with a tag, which
// is latest where there is none.
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

// reading remembers the keys of names as long as many are read: to read one takes a while,
// and thousands of pods use few images.
type reading map[string]string

func (r reading) key(ref string) string {
	k, known := r[ref]
	if !known {
		k = key(ref)
		r[ref] = k
	}
	return k
}

// keys are all that an image is known by, the ID's first.
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

// meant are the names of the image that a person means by one of them, if it has others: a tag, with the repository's
// digest if that has no other tag; or a digest with its repository's tags. It is empty where the image is meant as a
// whole.
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

// Named are the names with tags that a person means by one of the image's: that tag, or all of them if it is an ID or
// a digest.
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

// repositoryOf is empty for an ID.
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

// index finds images by what they are known by. Several may be: those with one digest
// in common, say.
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

// shortest is how many digits of an ID a person has to give at least.
const shortest = 6

// idPrefix reports whether text begins this ID, in hexadecimal, as people shorten them.
func idPrefix(id, text string) bool {
	text = strings.TrimPrefix(text, "sha256:")
	return len(text) >= shortest && strings.HasPrefix(strings.TrimPrefix(id, "sha256:"), text)
}
