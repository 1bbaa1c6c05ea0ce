package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxListed is how many names an error lists: enough to find the one that was
// meant. A pod can have thousands, and as many errors.
const maxListed = 20

// Names are the names of one kind of things in a pod, in the manifest's order, for checks of references to them.
type Names struct {
	list  []string
	known map[string]bool
}

// Add adds a name. Things without one can't be referred to.
func (n *Names) Add(name string) {
	if name == "" || n.known[name] {
		return
	}
	if n.known == nil {
		n.known = map[string]bool{}
	}
	n.list, n.known[name] = append(n.list, name), true
}

// Refer wants v to be one of the names; want says in words what they are, such
// as "must be one of the pod's volumes".
func (n *Names) Refer(at *field.Path, v, want string) field.ErrorList {
	switch {
	case v == "":
		return field.ErrorList{field.Required(at, want+n.listed())}
	case n.known[v]:
		return nil
	}
	err := field.NotFound(at, v)
	err.Detail = want + n.listed()
	return field.ErrorList{err}
}

func (n *Names) listed() string {
	switch more := len(n.list) - maxListed; {
	case len(n.list) == 0:
		return ", but there are none"
	case more > 0:
		return fmt.Sprintf(": %s and %d more", quoted(n.list[:maxListed]), more)
	}
	return ": " + quoted(n.list)
}

// Unique remembers values, and where they were first seen, and refuses those it has seen.
type Unique map[string]string

// Check refuses v if it was checked before. Empty values don't count: another check reports them.
func (u Unique) Check(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return nil
	}
	return u.CheckKey(at, v, v)
}

// CheckKey refuses a key that was checked before, and shows v for it.
func (u Unique) CheckKey(at *field.Path, key string, v any) field.ErrorList {
	if first, ok := u[key]; ok {
		err := field.Duplicate(at, v)
		err.Detail = "must differ from " + first
		return field.ErrorList{err}
	}
	u[key] = at.String()
	return nil
}
