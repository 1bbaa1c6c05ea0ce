package pressure

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rank is the place of a pod in the order in which pods would be ended.
type Rank struct {
	Signal   Signal
	Resource v1.ResourceName
	// Place is 1 for the pod that would be ended next, Of the number of pods that may be ended.
	Place, Of int
	// Used is the pod's use of the resource. Request is its request; nil if there are no requests of the resource.
	Used    int64
	Request *int64
}

// ranks returns the ranks of the pods that would be ended after the victim.
func ranks(act Act, l Layout) map[types.UID]*Rank {
	k := kindOf(act.For.Signal)
	list := make(map[types.UID]*Rank, len(act.Next))
	for i, p := range act.Next {
		r := &Rank{Signal: k.signal, Resource: k.resource, Place: i + 1, Of: len(act.Next), Used: k.used(p, l)}
		if k.request != nil {
			request := k.request(p)
			r.Request = &request
		}
		list[types.UID(p.UID)] = r
	}
	return list
}

// rank returns the pods that may be ended for a signal and use more than least, the first one to end first: pods that
// use more than they request come before others, then the priority and the amount decide.
func (k kind) rank(pods []Pod, l Layout, least int64) []*Pod {
	var list []*Pod
	for i := range pods {
		if p := &pods[i]; p.Running && !p.Critical && !p.Ending && k.used(p, l) > least {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b *Pod) int {
		overA, overB := k.over(a, l), k.over(b, l)
		return cmp.Or(
			-cmp.Compare(boolean(k.request != nil && overA > 0), boolean(k.request != nil && overB > 0)),
			cmp.Compare(a.Priority, b.Priority),
			-cmp.Compare(overA, overB),
			cmp.Compare(a.UID, b.UID),
		)
	})
	return list
}

// over returns how much more a pod uses than it requests.
func (k kind) over(p *Pod, l Layout) int64 {
	used := k.used(p, l)
	if k.request == nil {
		return used
	}
	return used - k.request(p)
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}
