package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Amount counts resources by name: CPU in millicores, memory and storage in bytes, other resources in units. A missing
// name is zero. An Amount isn't changed after it was passed on.
type Amount map[v1.ResourceName]int64

// most is the maximum of each amount: no node has that much, and the sum over all pods of a node still fits in an
// int64.
const most = 1 << 50

// AmountOf converts a resource list.
func AmountOf(l v1.ResourceList) Amount {
	a := make(Amount, len(l))
	for name, q := range l {
		count, unit := q.Value, int64(1)
		if name == v1.ResourceCPU {
			count, unit = q.MilliValue, 1000
		}
		// A Quantity beyond an int64 returns no useful number.
		if a[name] = most; q.CmpInt64(most/unit) < 0 {
			a[name] = count()
		}
	}
	return a
}

// Minus is a - b, resource by resource. The result may be negative.
func (a Amount) Minus(b Amount) Amount {
	out := maps.Clone(a)
	if out == nil {
		out = make(Amount, len(b))
	}
	for name, n := range b {
		out[name] -= n
	}
	return out
}

// Beyond is a - b, resource by resource, zero where that is negative.
func (a Amount) Beyond(b Amount) Amount {
	out := make(Amount, len(a))
	for name, n := range a {
		out[name] = max(n-b[name], 0)
	}
	return out
}

// AtLeast is the maximum of a and b, resource by resource.
func (a Amount) AtLeast(b Amount) Amount {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	out := maps.Clone(a)
	for name, n := range b {
		out[name] = max(out[name], n)
	}
	return out
}

// Positive reports whether any resource is above zero.
func (a Amount) Positive() bool {
	for _, n := range a {
		if n > 0 {
			return true
		}
	}
	return false
}

// Short returns the resources for which a is larger than free, in the order of messages. A resource that isn't
// requested is never short, even if pods hold more of it than the node has.
func (a Amount) Short(free Amount) []v1.ResourceName {
	var out []v1.ResourceName
	for name, n := range a {
		if n > 0 && n > free[name] {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(x, y v1.ResourceName) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x, y))
	})
	return out
}

// native are the resources that every node has, in the order in which the kubelet names them.
var native = [...]v1.ResourceName{v1.ResourcePods, v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}

func rank(name v1.ResourceName) int {
	if i := slices.Index(native[:], name); i >= 0 {
		return i
	}
	return len(native)
}

// Insufficient is the kubelet's message that names the resources that are short. Quantities are written as in
// manifests; the kubelet writes bytes and millicores. If used is nil, the message leaves out the amounts in use.
func Insufficient(names []v1.ResourceName, need, used, capacity Amount) string {
	what := "resource"
	if used == nil {
		what = "capacity"
	}
	parts := make([]string, 0, len(names))
	for _, name := range names {
		text := fmt.Sprintf("%s, requested: %s, ", name, need.quantity(name))
		if used != nil {
			text += fmt.Sprintf("used: %s, ", used.quantity(name))
		}
		parts = append(parts, text+"capacity: "+capacity.quantity(name))
	}
	return "Node didn't have enough " + what + ": " + strings.Join(parts, "; ")
}

// List converts the amount to the API's type.
func (a Amount) List() v1.ResourceList {
	list := make(v1.ResourceList, len(a))
	for name, n := range a {
		switch {
		case name == v1.ResourceCPU:
			list[name] = *resource.NewMilliQuantity(n, resource.DecimalSI)
		case inBytes(name):
			list[name] = *resource.NewQuantity(n, resource.BinarySI)
		default:
			list[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return list
}

func inBytes(name v1.ResourceName) bool {
	return name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || pod.IsHugePages(name)
}

// quantity is the amount of a resource as in a manifest: 1500m, 100Gi.
func (a Amount) quantity(name v1.ResourceName) string {
	switch n := a[name]; {
	case name == v1.ResourceCPU:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case inBytes(name):
		return resource.NewQuantity(n, resource.BinarySI).String()
	default:
		return strconv.FormatInt(n, 10)
	}
}
