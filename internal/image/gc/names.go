package gc

import (
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
