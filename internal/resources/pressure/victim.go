package pressure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Victim is a pod that is ended, with the texts for its status and event, which clients of the API compare.
type Victim struct {
	UID, Namespace, Name, Version string
	// Grace is the grace period of the pod.
	Grace   time.Duration
	Message string
	// Annotations are the annotations of the event.
	Annotations map[string]string
	// Over is by how much the pod's use exceeds its request, or the use if the resource can't be requested.
	Over int64
}

// immediately is the grace period for hard thresholds: the pod must not continue to use the resource. One second is
// enough for the signal to arrive.
const immediately = time.Second

// victim returns the Victim for a pod that is ended because of a threshold. Reason, message and annotations are the
// kubelet's. The signal is appended to the message, since the resource's name is the same for different file systems.
func (d *decision) victim(k kind, t Threshold, r Reading, p *Pod) *Victim {
	v := &Victim{UID: p.UID, Namespace: p.Namespace, Name: p.Name, Version: p.Version, Grace: immediately,
		Over: k.over(p, d.o.Layout)}
	if t.Grace > 0 {
		v.Grace = p.Grace
		if d.MaxPodGrace >= 0 {
			v.Grace = max(min(v.Grace, d.MaxPodGrace), immediately)
		}
	}
	quantity := func(n int64) string { return resource.NewQuantity(n, k.format).String() }
	var text strings.Builder
	fmt.Fprintf(&text, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", k.resource,
		quantity(t.Least.Of(r.Capacity)), quantity(r.Available))
	v.Annotations = map[string]string{"starved_resource": string(k.resource)}
	if used := k.used(p, d.o.Layout); slices.Contains(p.OfPod, k.resource) && used > k.request(p) {
		fmt.Fprintf(&text, "Pod %s was using %s, request is %s, has larger consumption of %s. ", p.Name, quantity(used),
			quantity(k.request(p)), k.resource)
		v.Annotations["offending_pod"], v.Annotations["offending_pod_usage"] = p.Name, quantity(used)
	}
	var names, uses []string
	for i := range p.Containers {
		c := &p.Containers[i]
		if k.container == nil {
			continue
		}
		used, request := k.container(c, d.o.Layout)
		if used <= request {
			continue
		}
		fmt.Fprintf(&text, "Container %s was using %s, request is %s, has larger consumption of %s. ", c.Name,
			quantity(used), quantity(request), k.resource)
		names, uses = append(names, c.Name), append(uses, quantity(used))
	}
	if len(names) > 0 {
		v.Annotations["offending_containers"] = strings.Join(names, ",")
		v.Annotations["offending_containers_usage"] = strings.Join(uses, ",")
	}
	fmt.Fprintf(&text, "Signal: %s.", k.signal)
	v.Message = text.String()
	return v
}
