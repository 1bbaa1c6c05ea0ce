// Package resources validates requests and limits: of containers, of the pod as
// a whole, and what depends on them.
package resources

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// Container validates a container's resources. claims names the pod's resource claims.
func Container(r *v1.ResourceRequirements, claims *rule.Names, at *field.Path) field.ErrorList {
	errs := requirements(r, at, containerName)
	return append(errs, claimRefs(r.Claims, claims, at.Child("claims"))...)
}

// List validates names and amounts of a list of resources such as a pod's overhead.
func List(list v1.ResourceList, at *field.Path) field.ErrorList {
	return amounts(list, at, containerName)
}

// nameRule tells whether a resource may be named where it is.
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

// amount wants zero or more; of what can't be divided, whole numbers; and of
// huge pages, whole pages.
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
	if !hugePages(name) {
		return nil
	}
	page, err := resource.ParseQuantity(strings.TrimPrefix(string(name), v1.ResourceHugePagesPrefix))
	if err != nil || page.Value() <= 0 {
		return field.ErrorList{field.Invalid(at, string(name), `must name a page size, such as "hugepages-2Mi"`)}
	}
	if q.Value()%page.Value() != 0 {
		return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("must be a multiple of the page size %s", page.String()))}
	}
	return nil
}

// requestVersusLimit wants requests not above limits; what can't be
// overcommitted must have the same limit.
func requestVersusLimit(name v1.ResourceName, r *v1.ResourceRequirements, at *field.Path) field.ErrorList {
	request := r.Requests[name]
	limit, ok := r.Limits[name]
	switch {
	case !ok && !shareable(name):
		return field.ErrorList{field.Required(at.Key(string(name)), fmt.Sprintf("a limit must be set too: %s can't be overcommitted", name))}
	case ok && !shareable(name) && request.Cmp(limit) != 0:
		return field.ErrorList{field.Invalid(at.Key(string(name)), request.String(), fmt.Sprintf("must be equal to the %s limit of %s", name, limit.String()))}
	case ok && request.Cmp(limit) > 0:
		return field.ErrorList{field.Invalid(at.Key(string(name)), request.String(), fmt.Sprintf("must be less than or equal to the %s limit of %s", name, limit.String()))}
	}
	return nil
}

// hugePagesAlone refuses huge pages without any cpu or memory.
func hugePagesAlone(r *v1.ResourceRequirements, at *field.Path) field.ErrorList {
	huge, other := false, false
	for _, list := range []v1.ResourceList{r.Limits, r.Requests} {
		for name := range list {
			huge = huge || hugePages(name)
			other = other || name == v1.ResourceCPU || name == v1.ResourceMemory
		}
	}
	if huge && !other {
		return field.ErrorList{field.Forbidden(at, "huge pages require cpu or memory")}
	}
	return nil
}

// containerName wants a standard resource of containers or an extended one
// ("example.com/gpu").
func containerName(at *field.Path, name v1.ResourceName) field.ErrorList {
	s := string(name)
	if errs := rule.Invalid(at, s, validation.IsQualifiedName(s)); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(s, "/") {
		if shareable(name) || hugePages(name) {
			return nil
		}
		return field.ErrorList{field.Invalid(at, s, "must be a standard resource for containers (cpu, memory, ephemeral-storage, hugepages-<size>) or have a domain in front (example.com/device)")}
	}
	domain, _, _ := strings.Cut(s, "/")
	if domain+"/" == v1.ResourceDefaultNamespacePrefix || strings.HasPrefix(s, v1.DefaultResourceRequestsPrefix) {
		return field.ErrorList{field.Invalid(at, s, "doesn't follow the standard for extended resource names")}
	}
	// A quota on the resource is called requests.<name>, which must be a name too.
	return rule.Invalid(at, s, validation.IsQualifiedName(v1.DefaultResourceRequestsPrefix+s))
}

// shareable resources can be overcommitted and divided.
func shareable(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

func hugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// sorted gives a list's names in the same order every time.
func sorted(list v1.ResourceList) []v1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}
