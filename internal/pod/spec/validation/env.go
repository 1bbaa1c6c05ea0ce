package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxFileKey is the maximum length of a key in an env file (KEP-3721).
const maxFileKey = 128

func (p podContainers) env(vars []v1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		item := at.Index(i)
		errs = append(errs, envName(item.Child("name"), vars[i].Name)...)
		if vars[i].ValueFrom != nil {
			errs = append(errs, p.valueFrom(&vars[i], item.Child("valueFrom"))...)
		}
	}
	return errs
}

func (p podContainers) valueFrom(v *v1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	from, sources := v.ValueFrom, 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, fieldRef(at.Child("fieldRef"), from.FieldRef, envFields())...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		errs = append(errs, resourceRef(at.Child("resourceFieldRef"), from.ResourceFieldRef, false)...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, keyRef(r.Name, r.Key, at.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, keyRef(r.Name, r.Key, at.Child("secretKeyRef"))...)
	}
	if from.FileKeyRef != nil {
		sources++
		errs = append(errs, p.fileKeyRef(from.FileKeyRef, at.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(at, "",
			"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func keyRef(name, key string, at *field.Path) field.ErrorList {
	errs := Required(at.Child("name"), name, "must name the object that has the key")
	return append(errs, ConfigKey(at.Child("key"), key)...)
}

func (p podContainers) fileKeyRef(r *v1.FileKeySelector, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, p.volumeName(r.VolumeName, at.Child("volumeName"))...)
	errs = append(errs, localFile(at.Child("path"), r.Path)...)
	switch key := at.Child("key"); {
	case r.Key == "":
		errs = append(errs, field.Required(key, "must name a variable in the file"))
	case len(r.Key) > maxFileKey:
		errs = append(errs, field.TooLong(key, r.Key, maxFileKey))
	default:
		errs = append(errs, Invalid(key, r.Key, validation.IsRelaxedEnvVarName(r.Key))...)
	}
	return errs
}

func envFrom(sources []v1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range sources {
		s, item := &sources[i], at.Index(i)
		if s.Prefix != "" {
			errs = append(errs, Invalid(item.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		if s.ConfigMapRef != nil {
			errs = append(errs, Required(item.Child("configMapRef", "name"), s.ConfigMapRef.Name,
				"must name a ConfigMap")...)
		}
		if s.SecretRef != nil {
			errs = append(errs, Required(item.Child("secretRef", "name"), s.SecretRef.Name, "must name a Secret")...)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(item, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(item, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}
