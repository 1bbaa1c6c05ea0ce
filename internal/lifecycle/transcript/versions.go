package transcript

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
)

// versions holds the specs that the segments refer to, oldest first, as JSON.
type versions struct {
	list []version
	// from is the pod of the newest version: the same pointer is encoded only once.
	from *v1.Pod
}

// version is one version of the pod, as JSON.
type version struct {
	number int
	json   []byte
	// whole is the length of the JSON before it was truncated; 0 if it wasn't.
	whole int
}

// of returns the number of the pod's version; 0 for no pod. If the pod differs from the newest version, it becomes a
// new version. JSON longer than limit is truncated to a quarter of limit.
func (vs *versions) of(p *v1.Pod, limit int) int {
	if p == nil {
		return 0
	}
	if p == vs.from {
		return vs.list[len(vs.list)-1].number
	}
	vs.from = p
	next := version{number: 1, json: formats().pod.AppendJSON(make([]byte, 0, 2<<10), words.At(p))}
	if len(next.json) > limit {
		next.whole = len(next.json)
		next.json = next.json[:limit/4]
	}
	next.json = slices.Clone(next.json)
	if n := len(vs.list); n > 0 {
		newest := &vs.list[n-1]
		if next.whole == newest.whole && bytes.Equal(next.json, newest.json) {
			return newest.number
		}
		next.number = newest.number + 1
	}
	vs.list = append(vs.list, next)
	return next.number
}

// since returns the size in bytes of the versions from this one on.
func (vs *versions) since(oldest int) (n int) {
	for i := range vs.list {
		if vs.list[i].number >= oldest {
			n += cap(vs.list[i].json)
		}
	}
	return n
}

// forget drops the versions before oldest, but never the newest.
func (vs *versions) forget(oldest int) {
	for len(vs.list) > 1 && vs.list[0].number < oldest {
		vs.list = slices.Delete(vs.list, 0, 1)
	}
}

// name returns the name of the section that holds a version; empty for version 0.
func (vs *versions) name(number int) string {
	switch number {
	case 0:
		return ""
	case 1:
		return "pod.yaml"
	}
	return "pod-" + strconv.Itoa(number) + ".yaml"
}

// cut returns why steps with this version of the pod can't be replayed; empty if they can.
func (vs *versions) cut(number int) string {
	for i := range vs.list {
		if v := &vs.list[i]; v.number == number && v.whole > 0 {
			return fmt.Sprintf("the pod takes %d bytes, of which %d are kept", v.whole, len(v.json))
		}
	}
	return ""
}
