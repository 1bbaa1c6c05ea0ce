package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Image describes one image on the node. It is immutable.
type Image struct {
	// ID is the runtime's ID. RemoveImage with the ID removes the image with all its names.
	ID string
	// Tags and Digests are the image's names, fully qualified ("docker.io/library/nginx:1").
	Tags, Digests []string
	// Size is in bytes, as the runtime counts it: shared layers count for each image.
	Size uint64
	// Pinned is the reason why the image is never collected, in use or not; empty for most images.
	Pinned string
	// Users are the pods, containers and commands that use the image.
	Users []User
	// Detected is when the agent first saw the image, Used when it last saw it in use; zero if never.
	Detected, Used time.Time
}

// User is a pod, a container or a command that uses an image.
type User struct {
	// Pod is "namespace/name"; empty for a command.
	Pod string
	// Container is the name of the pod's container; empty for the pod as a whole.
	Container string
	// How describes the use: "ended", "being pulled", "image volume", ...; it may be empty.
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

// Name returns the name to show to users: a tag, else a digest, else the ID.
func (i *Image) Name() string {
	switch {
	case len(i.Tags) > 0:
		return i.Tags[0]
	case len(i.Digests) > 0:
		return i.Digests[0]
	}
	return i.ID
}

// unusedSince returns when the image was last in use, or when it was detected if that is later.
func (i *Image) unusedSince() time.Time {
	if i.Used.After(i.Detected) {
		return i.Used
	}
	return i.Detected
}

// byUse orders images: never used ones first, then the least recently used, then those detected first.
func byUse(a, b Image) int {
	return cmp.Or(a.Used.Compare(b.Used), a.Detected.Compare(b.Detected), cmp.Compare(a.ID, b.ID))
}

// listUsers formats the first few users.
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
