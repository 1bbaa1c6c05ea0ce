package pressure

import (
	"cmp"
	"slices"
)

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
