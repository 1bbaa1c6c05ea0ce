package pressure

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

// Rank is the place of a pod in the order in which pods would be ended.
type Rank struct {
	Signal   Signal
	Resource v1.ResourceName
	// Place is 1 for the pod that would be ended next, Of the number of pods that may be ended.
	Place, Of int
	// Used is the pod's use of the resource. Request is its request; nil if the resource can't be requested.
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

// rank returns the pods that may be ended for a signal and that use more than least. The first one is to be ended
// first: pods that use more than they request come first, then pods of lower priority, then pods whose use exceeds
// their request by more.
func (k kind) rank(pods []Pod, l Layout, least int64) []*Pod {
	var list []*Pod
	for i := range pods {
		if p := &pods[i]; p.Active && !p.Critical && !p.Ending && k.used(p, l) > least {
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

// most names the pod that uses most of the resource, even if that pod may not be ended; empty if no pod uses any.
func (k kind) most(pods []Pod, l Layout) string {
	var most *Pod
	for i := range pods {
		if p := &pods[i]; k.used(p, l) > 0 && (most == nil || k.used(p, l) > k.used(most, l)) {
			most = p
		}
	}
	if most == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s (%s)", most.Namespace, most.Name, resource.NewQuantity(k.used(most, l), k.format))
}

// over returns by how much a pod's use exceeds its request.
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
