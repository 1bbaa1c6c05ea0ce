package validation

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxListed is the maximum number of names that an error lists. A pod can have thousands of names and as many
// errors.
const maxListed = 20

// Names is the list of names of items of one kind in a pod, such as its volumes, in the manifest's order. References to
// the items are checked with it.
type Names struct {
	list  []string
	known map[string]bool
}

// Add adds a name. It ignores an empty name, because no reference to it is possible.
func (n *Names) Add(name string) {
	if name == "" || n.known[name] {
		return
	}
	if n.known == nil {
		n.known = map[string]bool{}
	}
	n.list, n.known[name] = append(n.list, name), true
}

// Refer returns an error if v isn't one of the names. want is the message for that, such as "must be one of the
// pod's volumes".
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

// Unique detects duplicate values. It maps each value to the path where it occurred first.
type Unique map[string]string

// Check returns an error if v was checked before. Empty values don't count: another check reports them.
func (u Unique) Check(at *field.Path, v string) field.ErrorList {
	if v == "" {
		return nil
	}
	return u.CheckKey(at, v, v)
}

// CheckKey returns an error if the key was checked before. The error shows v instead of the key.
func (u Unique) CheckKey(at *field.Path, key string, v any) field.ErrorList {
	if first, ok := u[key]; ok {
		err := field.Duplicate(at, v)
		err.Detail = "must differ from " + first
		return field.ErrorList{err}
	}
	u[key] = at.String()
	return nil
}
