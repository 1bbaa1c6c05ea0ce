package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PodClaims validates a pod's resource claims and returns their names.
func PodClaims(claims []v1.PodResourceClaim, at *field.Path) (Names, field.ErrorList) {
	var errs field.ErrorList
	var names Names
	unique := Unique{}
	for i, c := range claims {
		item := at.Index(i)
		errs = append(errs, Label(item.Child("name"), c.Name)...)
		errs = append(errs, unique.Check(item.Child("name"), c.Name)...)
		names.Add(c.Name)
		claim, template := c.ResourceClaimName, c.ResourceClaimTemplateName
		switch {
		case claim == nil && template == nil:
			errs = append(errs, field.Required(item,
				"must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"))
		case claim != nil && template != nil:
			errs = append(errs, field.Invalid(item, c.Name,
				"at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"))
		}
		if claim != nil {
			errs = append(errs, Subdomain(item.Child("resourceClaimName"), *claim)...)
		}
		if template != nil {
			errs = append(errs, Subdomain(item.Child("resourceClaimTemplateName"), *template)...)
		}
	}
	return names, errs
}

// claimRefs checks a container's references to the pod's resource claims. A container uses either a whole claim or
// single requests of it.
func claimRefs(refs []v1.ResourceClaim, claims *Names, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[v1.ResourceClaim]bool{}
	whole, parts := map[string]bool{}, map[string]bool{}
	for i, r := range refs {
		item := at.Index(i)
		errs = append(errs, claims.Refer(item.Child("name"), r.Name, "must be one of the pod's resourceClaims")...)
		if r.Name == "" {
			continue
		}
		if r.Request != "" {
			errs = append(errs, Label(item.Child("request"), r.Request)...)
		}
		if seen[r] || r.Request == "" && parts[r.Name] || r.Request != "" && whole[r.Name] {
			err := field.Duplicate(item, r.Name)
			err.Detail = "must be used once as a whole, or once for each of its requests"
			errs = append(errs, err)
		}
		seen[r] = true
		if r.Request == "" {
			whole[r.Name] = true
		} else {
			parts[r.Name] = true
		}
	}
	return errs
}
