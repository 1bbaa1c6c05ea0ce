package resources

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Pod validates pod-level resources (KEP-2837): cpu, memory and huge pages; not
// less than the containers request together; no container's limit above the pod's.
func Pod(s *v1.PodSpec, at *field.Path) field.ErrorList {
	r := s.Resources
	if r == nil {
		return nil
	}
	path := at.Child("resources")
	errs := requirements(r, path, podName)
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "may not be set for the pod as a whole: set them for its containers"))
	}
	sum := resourcehelper.AggregateContainerRequests(&v1.Pod{Spec: *s}, resourcehelper.PodResourcesOptions{})
	for _, name := range sorted(sum) {
		errs = append(errs, enough(r.Limits, name, sum[name], path.Child("limits"))...)
		errs = append(errs, enough(r.Requests, name, sum[name], path.Child("requests"))...)
	}
	errs = append(errs, containerLimits(s.InitContainers, r.Limits, at.Child("initContainers"))...)
	return append(errs, containerLimits(s.Containers, r.Limits, at.Child("containers"))...)
}

// enough wants no less of a resource for the pod than its containers request.
func enough(list v1.ResourceList, name v1.ResourceName, used resource.Quantity, at *field.Path) field.ErrorList {
	q, ok := list[name]
	if !ok || !exceeds(used, q) {
		return nil
	}
	return field.ErrorList{field.Invalid(at.Key(string(name)), q.String(), fmt.Sprintf("must be greater than or equal to the %s the containers request together", used.String()))}
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
				errs = append(errs, field.Invalid(at.Index(i).Child("resources", "limits").Key(string(name)), limit.String(),
					fmt.Sprintf("must be less than or equal to the pod's %s limit of %s", name, most.String())))
			}
		}
	}
	return errs
}

func exceeds(a, b resource.Quantity) bool { return a.Cmp(b) > 0 }
