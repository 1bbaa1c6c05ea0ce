package validation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// containerResources validates a container's resources. claims are the names of the pod's resource claims.
func containerResources(r *v1.ResourceRequirements, claims *Names, at *field.Path) field.ErrorList {
	errs := requirements(r, at, containerName)
	return append(errs, claimRefs(r.Claims, claims, at.Child("claims"))...)
}

// ResourceList validates names and amounts of a list of resources such as a pod's overhead.
func ResourceList(list v1.ResourceList, at *field.Path) field.ErrorList {
	return amounts(list, at, containerName)
}

// nameRule returns errors if a resource of this name isn't allowed in the list that is checked.
type nameRule func(at *field.Path, name v1.ResourceName) field.ErrorList

func requirements(r *v1.ResourceRequirements, at *field.Path, names nameRule) field.ErrorList {
	limits, requests := at.Child("limits"), at.Child("requests")
	errs := amounts(r.Limits, limits, names)
	errs = append(errs, amounts(r.Requests, requests, names)...)
	for _, name := range sorted(r.Requests) {
		errs = append(errs, requestVersusLimit(name, r, requests)...)
	}
	return append(errs, hugePagesAlone(r, at)...)
}

func amounts(list v1.ResourceList, at *field.Path, names nameRule) field.ErrorList {
	var errs field.ErrorList
	for _, name := range sorted(list) {
		key := at.Key(string(name))
		errs = append(errs, names(key, name)...)
		errs = append(errs, amount(name, list[name], key)...)
	}
	return errs
}

// amount checks the amount of a resource. It must not be negative. For resources that can't be divided it has to be
// an integer, and for huge pages a multiple of the page size.
func amount(name v1.ResourceName, q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than or equal to 0")}
	}
	if shareable(name) {
		return nil
	}
	if q.MilliValue()%1000 != 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be an integer")}
	}
	if !pod.IsHugePages(name) {
		return nil
	}
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || page.Value() <= 0 {
		return field.ErrorList{field.Invalid(at, string(name), `must name a page size, such as "hugepages-2Mi"`)}
	}
	if q.Value()%page.Value() != 0 {
		return field.ErrorList{field.Invalid(at, q.String(),
			fmt.Sprintf("must be a multiple of the page size %s", page.String()))}
	}
	return nil
}

// requestVersusLimit checks that the request isn't above the limit. For resources that can't be overcommitted, both
// must be equal.
func requestVersusLimit(name v1.ResourceName, r *v1.ResourceRequirements, at *field.Path) field.ErrorList {
	request := r.Requests[name]
	limit, ok := r.Limits[name]
	switch {
	case !ok && !shareable(name):
		return field.ErrorList{field.Required(at.Key(string(name)),
			fmt.Sprintf("a limit must be set too: %s can't be overcommitted", name))}
	case ok && !shareable(name) && request.Cmp(limit) != 0:
		return field.ErrorList{field.Invalid(at.Key(string(name)), request.String(),
			fmt.Sprintf("must be equal to the %s limit of %s", name, limit.String()))}
	case ok && request.Cmp(limit) > 0:
		return field.ErrorList{field.Invalid(at.Key(string(name)), request.String(),
			fmt.Sprintf("must be less than or equal to the %s limit of %s", name, limit.String()))}
	}
	return nil
}

// hugePagesAlone returns an error for huge pages without any CPU or memory.
func hugePagesAlone(r *v1.ResourceRequirements, at *field.Path) field.ErrorList {
	huge, other := false, false
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || pod.IsHugePages(name)
			other = other || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	if huge && !other {
		return field.ErrorList{field.Forbidden(at, "huge pages require cpu or memory")}
	}
	return nil
}

// containerName checks the name of a container's resource: a standard resource, or an extended one such as
// "example.com/gpu".
func containerName(at *field.Path, name v1.ResourceName) field.ErrorList {
	s := string(name)
	if errs := Invalid(at, s, validation.IsQualifiedName(s)); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(s, "/") {
		if shareable(name) || pod.IsHugePages(name) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, s,
			"must be a standard resource for containers (cpu, memory, ephemeral-storage, hugepages-<size>) or have a "+
				"domain in front (example.com/device)")}
	}
	domain, _, _ := strings.Cut(s, "/")
	if domain+"/" == v1.ResourceDefaultNamespacePrefix || strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix) {
		return field.ErrorList{field.Invalid(at, s, "doesn't follow the standard for extended resource names")}
	}
	// In a ResourceQuota, the resource is called requests.<name>, which must be a valid name, too.
	return Invalid(at, s, validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+s))
}

// shareable reports whether a resource can be overcommitted and divided.
func shareable(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// sorted returns the names in a list, sorted, so that errors are always in the same order.
func sorted(list v1.ResourceList) []v1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// PodResources validates pod-level resources (KEP-2837): only CPU, memory and huge pages are allowed, neither
// requests nor limits may be below the total requests of the containers, and no container's limit may be above the
// pod-level limit.
func PodResources(s *v1.PodSpec, at *field.Path) field.ErrorList {
	r := s.Resources
	if r == nil {
		return nil
	}
	path := at.Child("resources")
	errs := requirements(r, path, podName)
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"),
			"may not be set for the pod as a whole: set them for its containers"))
	}
	sum := resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
	for _, name := range sorted(sum) {
		errs = append(errs, enough(r.Limits, name, sum[name], path.Child("limits"))...)
		errs = append(errs, enough(r.Requests, name, sum[name], path.Child("requests"))...)
	}
	errs = append(errs, containerLimits(s.InitContainers, r.Limits, at.Child("initContainers"))...)
	return append(errs, containerLimits(s.Containers, r.Limits, at.Child("containers"))...)
}

// enough returns an error if the pod-level amount of a resource is below used, the total requests of the containers.
func enough(list v1.ResourceList, name v1.ResourceName, used resource.Quantity, at *field.Path) field.ErrorList {
	q, ok := list[name]
	if !ok || !exceeds(used, q) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Key(string(name)), q.String(),
		fmt.Sprintf("must be greater than or equal to the %s the containers request together", used.String()))}
}

func podName(at *field.Path, name v1.ResourceName) field.ErrorList {
	if resourcehelper.IsSupportedPodLevelResource(name) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, name, []string{"cpu", "hugepages-*", "memory"})}
}

func containerLimits(containers []v1.Container, pod v1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range containers {
		limits := containers[i].Resources.Limits
		for _, name := range sorted(limits) {
			if most, ok := pod[name]; ok && exceeds(limits[name], most) {
				limit := limits[name]
				errs = append(errs, field.Invalid(at.Index(i).Child("resources", "limits").Key(string(name)),
					limit.String(),
					fmt.Sprintf("must be less than or equal to the pod's %s limit of %s", name, most.String())))
			}
		}
	}
	return errs
}

func exceeds(a, b resource.Quantity) bool { return a.Cmp(b) > 0 }

// resizePolicy validates how a container is resized (KEP-1287). noRestart is the reason why it can't be resized by a
// restart; "" if it can.
//
// A resource that isn't listed is resized without a restart. This default isn't filled in, because API servers don't
// fill it in either, since 1.33.
func resizePolicy(policies []v1.ContainerResizePolicy, noRestart string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := Unique{}
	for i, p := range policies {
		name, restart := at.Index(i).Child("resourceName"), at.Index(i).Child("restartPolicy")
		errs = append(errs, OneOf(name, p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)...)
		errs = append(errs, unique.Check(name, string(p.ResourceName))...)
		if p.RestartPolicy == v1.RestartContainer && noRestart != "" {
			errs = append(errs, field.Invalid(restart, p.RestartPolicy,
				fmt.Sprintf("must be %q: %s", v1.NotRequired, noRestart)))
			continue
		}
		errs = append(errs, OneOf(restart, p.RestartPolicy, v1.NotRequired, v1.RestartContainer)...)
	}
	return errs
}
