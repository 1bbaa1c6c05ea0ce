package validation

import (
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxCredentialSpec = 64 << 10
	maxUserName       = 104
	maxUserDomain     = 256
)

// userNameForbidden matches the characters that the name of a Windows account can't have.
var userNameForbidden = regexp.MustCompile(`["/\\:;|=,+*?<>@\[\]]|^[. ]+$|[[:cntrl:]]`)

// windows validates the Windows options of a pod or container. A Windows pod can't run here, but its manifest is
// validated like that of any other pod.
func windows(o *v1.WindowsSecurityContextOptions, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if o.GMSACredentialSpecName != nil {
		errs = append(errs, Subdomain(at.Child("gmsaCredentialSpecName"), *o.GMSACredentialSpecName)...)
	}
	if o.GMSACredentialSpec != nil {
		spec := at.Child("gmsaCredentialSpec")
		switch n := len(*o.GMSACredentialSpec); {
		case n == 0:
			errs = append(errs, field.Invalid(spec, "", "gmsaCredentialSpec cannot be an empty string"))
		case n > maxCredentialSpec:
			errs = append(errs, field.TooLong(spec, "", maxCredentialSpec))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, userName(*o.RunAsUserName, at.Child("runAsUserName"))...)
	}
	return errs
}

// userName checks that the name has the form USER or DOMAIN\USER.
func userName(name string, at *field.Path) field.ErrorList {
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	switch {
	case name == "":
		return field.ErrorList{field.Invalid(at, name, "runAsUserName cannot be an empty string")}
	case user == "" || len(user) > maxUserName || userNameForbidden.MatchString(user):
		return field.ErrorList{field.Invalid(at, name,
			`the user must have 1 to 104 characters, none of them a control character or one of "/\:;|=,+*?<>@[]`)}
	case !hasDomain:
		return nil
	case len(domain) >= maxUserDomain || len(validation.IsDNS1123Subdomain(strings.ToLower(domain))) > 0:
		return field.ErrorList{field.Invalid(at, name,
			"the domain must be a DNS or NetBIOS name of less than 256 characters")}
	}
	return nil
}

// hostProcess checks that either all containers of the pod or none are HostProcess containers, and that such a pod
// uses the host's network (KEP-1981).
func hostProcess(s *v1.PodSpec, at *field.Path) field.ErrorList {
	podWide := s.SecurityContext != nil && wantsHostProcess(s.SecurityContext.WindowsOptions, false)
	with, without := 0, 0
	count := func(sc *v1.SecurityContext) {
		own := podWide
		if sc != nil {
			own = wantsHostProcess(sc.WindowsOptions, podWide)
		}
		if own {
			with++
		} else {
			without++
		}
	}
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			count(list[i].SecurityContext)
		}
	}
	for i := range s.EphemeralContainers {
		count(s.EphemeralContainers[i].SecurityContext)
	}
	var errs field.ErrorList
	if with > 0 && without > 0 {
		errs = append(errs, field.Invalid(at, "",
			"if pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if with > 0 && !s.HostNetwork {
		errs = append(errs, field.Invalid(at.Child("hostNetwork"), false,
			"hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

func wantsHostProcess(o *v1.WindowsSecurityContextOptions, otherwise bool) bool {
	if o == nil || o.HostProcess == nil {
		return otherwise
	}
	return *o.HostProcess
}
