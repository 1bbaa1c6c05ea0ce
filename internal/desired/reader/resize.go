package reader

import (
	"fmt"
	"maps"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// resizableNames are the resources that can be resized. KEP-1287 allows this for main containers and sidecars (other
// init containers end soon), and KEP-5419 for the pod as a whole. A resource that is set can't be removed, and the QoS
// class can't change.
var resizableNames = [...]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory}

// resized returns the old resources was with the CPU and memory of the new resources now. It returns nil only if now is
// nil and no other resources are left.
func resized(was, now *v1.ResourceRequirements) *v1.ResourceRequirements {
	a, b := ptr.Deref(was, v1.ResourceRequirements{}), ptr.Deref(now, v1.ResourceRequirements{})
	a.Limits, a.Requests = resizedList(a.Limits, b.Limits), resizedList(a.Requests, b.Requests)
	if now == nil && len(a.Limits)+len(a.Requests)+len(a.Claims) == 0 {
		return nil
	}
	return &a
}

func resizedList(was, now v1.ResourceList) v1.ResourceList {
	out := make(v1.ResourceList, len(was))
	maps.Copy(out, was)
	for _, name := range resizableNames {
		delete(out, name)
		if q, ok := now[name]; ok {
			out[name] = q
		}
	}
	return out
}

// unresizable returns why the resources of the old pod, was, can't be resized to those of the new pod, now; "" if
// they can. The pods have their defaults, and differ only in resizable resources.
func unresizable(was, now *v1.Pod, class func(*v1.Pod) v1.PodQOSClass) string {
	changed := ""
	for _, r := range resources(was, now) {
		if why := removed(r); why != "" {
			return why
		}
		if changed == "" {
			changed = difference(reflect.ValueOf(r.was), reflect.ValueOf(r.now), r.path)
		}
	}
	if changed == "" {
		return ""
	}
	if a, b := class(was), class(now); a != b {
		return fmt.Sprintf("%s, which would change the pod's QoS class from %s to %s", changed, a, b)
	}
	return ""
}

// pair has the resources of the old and the new pod at one path.
type pair struct {
	path     string
	was, now v1.ResourceRequirements
}

// resources returns pairs of all resources of two pods that have the same containers.
func resources(was, now *v1.Pod) []pair {
	var pairs []pair
	for _, list := range []struct {
		path     string
		was, now []v1.Container
	}{
		{"spec.initContainers", was.Spec.InitContainers, now.Spec.InitContainers},
		{"spec.containers", was.Spec.Containers, now.Spec.Containers},
	} {
		for i := range list.was {
			pairs = append(pairs, pair{fmt.Sprintf("%s[%d].resources", list.path, i), list.was[i].Resources,
				list.now[i].Resources})
		}
	}
	return append(pairs, pair{"spec.resources", ptr.Deref(was.Spec.Resources, v1.ResourceRequirements{}),
		ptr.Deref(now.Spec.Resources, v1.ResourceRequirements{})})
}

func removed(r pair) string {
	for _, list := range []struct {
		field    string
		was, now v1.ResourceList
	}{{"limits", r.was.Limits, r.now.Limits}, {"requests", r.was.Requests, r.now.Requests}} {
		for _, name := range resizableNames {
			_, before := list.was[name]
			if _, after := list.now[name]; before && !after {
				return fmt.Sprintf("%s.%s[%s] was removed", r.path, list.field, name)
			}
		}
	}
	return ""
}
