package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Image is what there is to know of one image on the node. It is immutable.
type Image struct {
	// ID is the runtime's: what it removes an image by, with all its names.
	ID string
	// Tags and Digests are the names it has, in full ("docker.io/library/nginx:1").
	Tags, Digests []string
	// Size is in bytes, as the runtime counts it: layers that images share count for each.
	Size uint64
	// Pinned says why it is never collected, whether in use or not; empty for most.
	Pinned string
	// Users are who needs it.
	Users []User
	// Detected is when this node first saw it, Used when it was last seen in use: zero
	// for one that never was.
	Detected, Used time.Time
}

// User is who needs an image.
type User struct {
	// Pod is "namespace/name"; empty for a person.
	Pod string
	// Container is the container's name in it; empty for the pod as a whole.
	Container string
	// How adds what should be known of it: "ended", "being pulled", "image volume", ...; it may be empty.
	How string
}

func (u User) String() string {
	if u.Pod == "" {
		return u.How
	}
	text := "pod " + u.Pod
	if u.Container != "" {
		text = "container " + u.Container + " of " + text
	}
	if u.How != "" {
		text += " (" + u.How + ")"
	}
	return text
}

// Name is what a person knows the image by: a tag, else a digest, else its ID.
func (i *Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	}
	return i.ID
}

// unusedSince is when it was last in use; of one that never was, when it was detected.
func (i *Image) unusedSince() time.Time {
	if i.Used.After(i.Detected) {
		return i.Used
	}
	return i.Detected
}

// byUse orders images: the one not used for longest first, never used ones before all
// others, then the one detected first.
func byUse(a, b Image) int {
	return cmp.Or(a.Used.Compare(b.Used), a.Detected.Compare(b.Detected), cmp.Compare(a.ID, b.ID))
}

// listUsers names users for a person; the first few of many.
func listUsers(users []User) string {
	const most = 3
	names := make([]string, 0, most)
	for _, u := range users[:min(len(users), most)] {
		names = append(names, u.String())
	}
	slices.Sort(names)
	names = slices.Compact(names)
	text := strings.Join(names, ", ")
	if more := len(users) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
